"""The five papers as protocols: straight-line text code over Turns and Replies."""
