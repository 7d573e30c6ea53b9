"""What runs on the other side: a small fork server in a fresh interpreter, standard library only.

It is started by path, without the rest of the package, so nothing of the trainer is in its memory.
"""
