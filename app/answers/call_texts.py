"""The texts of a syntax of tool calls: what stands around calls, and around the content of an answer."""

from dataclasses import dataclass

from app.answers.call_heads import ID


@dataclass(frozen=True)
class CallIds:
    """The ids of a syntax's calls."""

    given: str = ID  # with ID, or with NAME and NUMBER where templates name calls so before their results
    rule: str = "[a-zA-Z0-9]{9}"  # of an id that the model chooses
    length: int = 0  # letters and digits of an id that the model does not choose; 0: the template takes any


@dataclass(frozen=True)
class Reply:
    """What stands around the content of an answer, and between it, a thought and calls.

    Solar Open's <|content|>Let me see.<|end|><|begin|>assistant<|tool_calls|>... has the content around="<|content|>",
    "<|end|>", and is resumed="<|begin|>assistant" before the calls.
    """

    markers: tuple[str, ...] = ()  # all that may stand around content; the parser drops them
    always: bool = False  # they stand there in answers without tools, too, as in Command R's <|START_RESPONSE|>Hi.
    around: tuple[str, str] = ("", "")  # what a form of the answer stands between; "": nothing does
    first: bool = False  # content comes before calls, if only an empty one
    resumed: str = ""  # between two parts of an answer


@dataclass(frozen=True)
class CallTexts:
    """Around calls: trigger, opening, head(name), arguments, tail, then joint and the next head, or closing.

    Whitespace between symbols is matched loosely.
    """

    name: str
    trigger: str
    head: str  # with NAME; ID and NUMBER where calls have them
    tail: str = ""
    opening: str = ""
    joint: str | None = None  # between two calls of one block; None: a block has one call
    closing: str = ""
    between: str = ""  # between two blocks
    at_start: bool = False  # calls appear only at the start of an answer
    alone: bool = False  # an answer has one call
    opens_text: bool = False  # the trigger begins content, too, and a prompt may end with it
    token: str = ""  # the control token with which calls begin, if that is not the trigger
    in_thoughts: bool = False  # a call may end a thought
    sorts_results: bool = False  # results of tools are in the order of their calls
    ids: CallIds = CallIds()
    reply: Reply = Reply()

    @property
    def first_token(self) -> str:
        """The text of the control token with which calls begin."""
        return self.token or self.trigger
