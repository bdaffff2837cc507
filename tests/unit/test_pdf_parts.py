"""PDF files in requests: their text takes their place before a request is checked."""

import asyncio
import base64
from typing import Any

import pytest

from app.compatible.anthropic import messages_request
from app.openai.pdf import with_pdf_texts
from app.openai.requests import ChatRequest, chat_request
from app.openai.responses import responses_request
from py_engine.errors import WispError

PDF = base64.b64encode(b"%PDF-1.7 rest").decode()
FILE = {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}


def with_texts(body: Any, found: str | Exception = "Zwölf Euro.") -> Any:
    """The request, by a reader that finds this text in the PDF above."""

    async def read(data: bytes) -> str:
        assert data == b"%PDF-1.7 rest"
        if isinstance(found, Exception):
            raise found
        return found

    return asyncio.run(with_pdf_texts(body, read))


def chat(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def test_a_chat_reads_the_text_after_the_name() -> None:
    body = chat({"type": "text", "text": "How much?"}, {"type": "file", "file": FILE})
    content = chat_request(with_texts(body)).messages[0]["content"]
    assert [part["text"] for part in content] == ["How much?", "a.pdf:\nZwölf Euro."]
    assert content[1]["untrusted"] is True
    assert body["messages"][0]["content"][1]["file"] == FILE  # the caller's stays


def test_a_data_url_may_be_percent_encoded() -> None:
    file = {"file_data": "data:application/pdf,%25PDF-1.7%20rest"}
    content = chat_request(with_texts(chat({"type": "file", "file": file}))).messages[0]["content"]
    assert content[0]["text"] == "Zwölf Euro."


def test_a_response_reads_its_input_files() -> None:
    body = {"input": [{"role": "user", "content": [{"type": "input_file", **FILE, "file_data": PDF}]}]}
    request = responses_request(with_texts(body)).request
    assert isinstance(request, ChatRequest)
    content = request.messages[0]["content"]
    assert content[0]["text"] == "a.pdf:\nZwölf Euro."


def test_documents_of_anthropic_are_read_in_messages_and_in_results_of_tools() -> None:
    block = {"type": "document", "title": "a.pdf", "source": {"type": "base64", "data": PDF}}
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": [block]}
    body = chat({"type": "text", "text": "How much?"}, block, result) | {"max_tokens": 9}
    request = messages_request(with_texts(body)).request
    assert isinstance(request, ChatRequest)
    found, said = (message["content"] for message in request.messages)
    assert [part["text"] for part in (*found, *said)] == ["a.pdf:\nZwölf Euro.", "How much?", "a.pdf:\nZwölf Euro."]


@pytest.mark.parametrize(
    ("found", "words"), [(ValueError("no page is open"), "no page is open"), (" \n", "without text: send its pages")]
)
def test_files_that_give_no_text(found: str | Exception, words: str) -> None:
    with pytest.raises(WispError, match=words) as error:
        with_texts(chat({"type": "file", "file": FILE}), found)
    assert error.value.param == "messages[0].content[0].file"


@pytest.mark.parametrize(
    "body",
    [
        *(None, [], {"messages": 5}, {"messages": ["x"]}, {"input": "hi"}),
        *(chat("x"), chat({"type": "file"}), chat({"type": "file", "file": {"file_data": "%"}})),
        chat({"type": "file", "file": {"file_data": base64.b64encode(b"text").decode()}}),
    ],
)
def test_everything_else_is_left_to_the_check(body: Any) -> None:
    assert with_texts(body) == body
