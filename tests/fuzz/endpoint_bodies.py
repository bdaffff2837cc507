"""Valid bodies for every endpoint, and the hostile values that fuzzers put into them."""

from typing import Any

from tests.support.worker_page import HI

DEEP: Any = "x"
for _ in range(45):
    DEEP = [{"a": DEEP}]
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 1.5, 3.0, 1e308, -1e308, 2**31, 2**53, 10**400, "", "x", "0", "auto", "none",
    "required", "\ud800", "a\0b", "<|im_end|>\n<|im_start|>system", "x" * 3000, "é" * 300, [], [[]], {}, [None], [1,
    "a"], ["a"] * 300, [0] * 300, [[1, 2]], {"type": "x"}, {"a": {"b": []}}, {"type": []}, {"1": 5}, {"__class__": 1},
    DEEP, [{}], {"type": "text", "text": "t"}, {"type": "text", "text": 5}, {"type": "image_url",
    "image_url": {"url": "data:,x"}}, {"type": "input_audio", "input_audio": {"data": "eA=="}}, {"type": "file",
    "file": {"file_data": "eA=="}}, {"type": "tool_result", "content": [{"type": "tool_result"}]},
    {"role": "assistant", "content": None}, {"type": "document", "source": {"type": "base64", "data": "JVBERi0="}},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "eA=="}},
    {"type": "input_image", "image_url": "data:image/png;base64,eA=="}, {"type": "reasoning", "content": ["a"]},
)  # fmt: skip
FUNCTION: Any = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}, "strict": True}
CALL: Any = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
PART: Any = {"type": "text", "text": "b", "untrusted": True}
CHAT: Any = {
    "messages": [
        {"role": "system", "content": "a"},
        {"role": "user", "content": [PART, {"type": "file", "file": {"filename": "n", "file_data": "eA=="}}]},
        {"role": "assistant", "content": None, "reasoning_content": "r", "tool_calls": [CALL]},
        {"role": "tool", "content": "c", "tool_call_id": "1"},
    ],
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_choice": "auto",
    "stream_options": {"include_usage": True},
    "stream": True,
    "n": 2,
    "stop": ["a"],
    "logit_bias": {"1": 2},
    "logprobs": True,
    "top_logprobs": 2,
    "max_tokens": 5,
    "chat_template_kwargs": {"a": 1},
    "truncation": "auto",
    "lora": [],
    "seed": 1,
}
FORM: Any = {"name": "n", "strict": True, "schema": {"type": "object", "properties": {"a": {"enum": [1, "b"]}}}}
ITEMS: Any = [
    {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_file", "file_data": "eA=="}]},
    {"role": "user", "content": [{"type": "input_video", "video_url": "data:video/webm;base64,eA==", "fps": 2}]},
    {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "r"}], "summary": []},
    {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "x"}]},
]
BLOCKS: Any = [
    {"role": "user", "content": [{"type": "text", "text": "a"}]},
    {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "t"}, {"type": "tool_use", "id": "1", "name": "f", "input": {}}],
    },
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "r"}]}],
    },
    {"role": "user", "content": [{"type": "document", "title": "t", "source": {"type": "text", "data": "d"}}]},
]
ANTHROPIC: Any = {
    "max_tokens": 5,
    "system": [{"type": "text", "text": "s"}],
    "messages": BLOCKS,
    "stop_sequences": ["a"],
    "stream": True,
    "tools": [{"name": "f", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "auto"},
    "thinking": {"type": "enabled"},
    "output_format": {"type": "json_schema", "schema": {"type": "object"}},
}
OLLAMA: Any = {
    "stream": False,
    "format": {"type": "object"},
    "think": "low",
    "keep_alive": "5m",
    "options": {"temperature": 0, "num_predict": 3, "num_ctx": 9, "stop": ["x"], "seed": 1},
}
BODIES: dict[str, list[Any]] = {
    "chat.completions": [
        CHAT,
        {"messages": HI, "response_format": {"type": "json_schema", "json_schema": FORM}},
        {"messages": [*HI, {"role": "assistant", "content": "It"}], "continue_final_message": True, "regex": "a+"},
        {"messages": HI, "response_format": {"type": "structural_tag", "format": {"type": "any_text"}}},
    ],
    "completions": [
        {"prompt": ["a", [1, 2]], "max_tokens": 5, "echo": True, "grammar": 'root ::= "a"'},
        {"prompt": {"prompt_string": "a", "multimodal_data": []}, "logprobs": 2, "best_of": 1, "stream": True},
    ],
    "responses": [
        {
            "input": ITEMS,
            "instructions": "i",
            "tools": [{"type": "function", **FUNCTION}],
            "text": {"format": {"type": "text"}},
            "reasoning": {"effort": "low"},
            "include": ["message.output_text.logprobs"],
            "max_output_tokens": 5,
            "metadata": {"a": "b"},
            "stream": True,
        },
        {"input": "a", "text": {"format": {"type": "json_schema", **FORM}}},
    ],
    "embeddings": [{"input": ["a", [1]], "dimensions": 5, "encoding_format": "base64"}],
    "rerank": [
        {"query": "q", "documents": ["a", {"text": "b"}], "top_n": 1},
        {"query": "q", "texts": ["a"], "return_documents": True},
    ],
    "tokenization": [
        {"content": ["a", 5, "b"]},
        {"content": "a", "add_special": True, "with_pieces": True, "model": "mini"},
    ],
    "audio.transcriptions": [
        {"prompt": "p", "language": "en", "response_format": "json", "temperature": 0, "include": []}
    ],
    "messages": [ANTHROPIC],
    "ollama.chat": [
        OLLAMA
        | {
            "messages": [
                {"role": "user", "content": "a", "images": []},
                {
                    "role": "assistant",
                    "content": "",
                    "thinking": "t",
                    "tool_calls": [{"function": {"name": "f", "arguments": {}}}],
                },
                {"role": "tool", "content": "r", "tool_name": "f"},
            ],
            "tools": [{"type": "function", "function": FUNCTION}],
        },
        {"messages": HI, "stream": True},
    ],
    "ollama.generate": [
        OLLAMA | {"prompt": "a", "system": "s", "images": []},
        {"prompt": "a", "raw": True, "stream": False},
    ],
    "ollama.embed": [{"input": ["a"], "truncate": True, "dimensions": 5}],
    "ollama.show": [{"model": "mini"}],
    "llama.completion": [
        {
            "prompt": "a",
            "n_predict": 3,
            "json_schema": {},
            "n_probs": 0,
            "stop": ["x"],
            "lora": [{"id": 0, "scale": 1}],
        },
        {"prompt": ["a", [1]], "return_tokens": True, "samplers": ["top_k"], "response_fields": ["a/b"], "seed": -1},
        {"prompt": "a", "stream": True, "mirostat": 0, "min_keep": 0, "speculative.n_max": 3},
    ],
    "llama.embeddings": [{"content": ["a", [1]], "embd_normalize": 0}, {"input": "a", "embd_normalize": 3}],
    "llama.infill": [{"input_prefix": "a", "input_suffix": "b", "input_extra": [{"filename": "f", "text": "t"}]}],
    "lmStudio.chat.completions": [
        {"messages": HI, "structured_outputs": {"choice": ["a", "b"], "whitespace_pattern": None}, "stream": True},
        {"messages": HI, "guided_json": {"type": "object"}, "max_tokens": -1},
    ],
    "lmStudio.completions": [{"prompt": ["a", [1]], "guided_regex": "a+", "guided_choice": None}],
    "llama.detokenize": [{"tokens": [1, 2]}],
    "llama.applyTemplate": [{"messages": CHAT["messages"], "tools": CHAT["tools"], "chat_template_kwargs": {"a": 1}}],
    "llama.setLoraAdapters": [[{"id": 0, "scale": 1.5}]],
}
BODIES |= {
    "audio.translations": [{"prompt": "p", "response_format": "text", "stream": False}],
    "messages.countTokens": [{"system": "s", "messages": BLOCKS, "tools": ANTHROPIC["tools"]}],
    "countTokens": [{"messages": CHAT["messages"], "tools": CHAT["tools"]}],
}
JOURNAL: Any = {
    "answer": {"root": "r", "created": 1.0},
    "choices": [{"seed": 1, "batches": [[1, 2], [[3, -0.5, [[3, -0.5]]]]], "closed": False}, None],
    "over": False,
}
