"""A byte-level BPE tokenizer trained on the spot, and the chat format that goes with it."""

from collections.abc import Iterable, Mapping, Sequence

from jinja2 import Environment
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, TURN_START, TURN_END)

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

COMPILED_TEMPLATE = Environment(autoescape=False, keep_trailing_newline=True).from_string(CHAT_TEMPLATE)

Message = Mapping[str, str]


def train_tokenizer(texts: Iterable[str], *, vocab_size: int) -> Tokenizer:
    """Trains byte-level BPE with at most `vocab_size` entries, the special tokens first; any text encodes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def render_chat(messages: Sequence[Message], *, add_generation_prompt: bool = False) -> str:
    """Renders a dialogue as the text that the model sees, by the very template that the checkpoint carries."""
    return COMPILED_TEMPLATE.render(messages=messages, add_generation_prompt=add_generation_prompt)
