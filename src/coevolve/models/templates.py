"""What a chat template says about the end of a turn. Loads no model library."""

from typing import Any

from jinja2 import TemplateError

# A conversation whose answer can be found again in the rendered text.
QUESTION = "?"
ANSWER = "coevolve-answer"


def turn_end_token(tokenizer: Any) -> int | None:
    """Return the token that ends an answer under the tokenizer's chat template.

    None if the template ends turns in plain text, and for a tokenizer without a template. Base
    models often declare another end token, which their template never writes: such a model would
    run on past its answer.
    """
    if not getattr(tokenizer, "chat_template", None):
        return None
    messages = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": ANSWER},
    ]
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False)
    except (TemplateError, TypeError, ValueError):  # it refuses such a conversation
        return None
    _, _, ending = text.rpartition(ANSWER)
    token_ids = tokenizer(ending.strip(), add_special_tokens=False).input_ids
    if token_ids and token_ids[0] in tokenizer.all_special_ids:
        return int(token_ids[0])
    return None
