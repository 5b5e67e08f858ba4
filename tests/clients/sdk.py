#!/usr/bin/env python3
"""The openai and anthropic packages against `k3 serve` with the bundled model: whole and streamed answers, thinking, tools over several turns,
structured output, errors. Usage: sdk.py [BINARY]"""
import json
import sys

try:
    import anthropic
    import openai
except ImportError as e:
    print(e)
    sys.exit(77)

from server import Server, run

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
OPENAI_TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Get the weather of a city.", "parameters": WEATHER}}
ANTHROPIC_TOOL = {"name": "get_weather", "description": "Get the weather of a city.", "input_schema": WEATHER}
RESPONSES_TOOL = {"type": "function", "name": "get_weather", "description": "Get the weather of a city.", "parameters": WEATHER}
RESULT = json.dumps({"sky": "sunny", "degrees": 21})
ASK = "What is the weather in Paris?"
GREEDY = {"temperature": 0}
TOLD = "It is sunny in Paris, 21 degrees."


def equal(a, b):
    assert a == b, f"{a!r} is not {b!r}"


# ---- chat completions ----------------------------------------------------------------------------------------------------


def whole_answers_think_apart(o, a):
    r = o.chat.completions.create(model="k3-mini", temperature=0, messages=[{"role": "user", "content": "What is 58 plus 67?"}])
    m = r.choices[0].message
    equal(m.content, "58 + 67 = 125")
    assert "5 carry 1" in m.reasoning_content
    equal(r.choices[0].finish_reason, "stop")
    equal(r.usage.total_tokens, r.usage.prompt_tokens + r.usage.completion_tokens)
    assert m.tool_calls is None


def streamed(o, **request):
    """The pieces of a stream put together, and its chunks."""
    text, thought, calls, chunks = "", "", {}, []
    for chunk in o.chat.completions.create(model="k3-mini", temperature=0, stream=True, **request):
        chunks.append(chunk)
        for choice in chunk.choices:
            d = choice.delta
            text += d.content or ""
            thought += getattr(d, "reasoning_content", None) or ""
            for c in d.tool_calls or []:
                call = calls.setdefault(c.index, {"id": c.id, "name": c.function.name, "arguments": ""})
                call["arguments"] += c.function.arguments or ""
    return text, thought, calls, chunks


def a_stream_joins_to_the_whole_answer(o, a):
    messages = [{"role": "user", "content": "What is 58 plus 67?"}]
    whole = o.chat.completions.create(model="k3-mini", temperature=0, messages=messages)
    text, thought, calls, chunks = streamed(o, messages=messages, stream_options={"include_usage": True})
    equal((text, thought, calls), (whole.choices[0].message.content, whole.choices[0].message.reasoning_content, {}))
    equal(chunks[-1].choices, [])
    equal(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
    equal([c.choices[0].finish_reason for c in chunks[:-1] if c.choices[0].finish_reason], ["stop"])
    equal(len({c.id for c in chunks}), 1)


def tools_over_several_turns(o, a):
    """Ask, call, result, answer, and another question, streamed and not; the thinking goes back as it came."""
    for stream in (False, True):
        messages = [{"role": "user", "content": ASK}]
        for expect in ("call", "answer"):
            if stream:
                text, thought, calls, _ = streamed(o, messages=messages, tools=[OPENAI_TOOL])
                calls = [{"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}} for c in calls.values()]
            else:
                m = o.chat.completions.create(model="k3-mini", temperature=0, messages=messages, tools=[OPENAI_TOOL]).choices[0].message
                text, thought, calls = m.content or "", getattr(m, "reasoning_content", None), [c.model_dump() for c in m.tool_calls or []]
            if expect == "call":
                equal([c["function"]["name"] for c in calls], ["get_weather"])
                equal(json.loads(calls[0]["function"]["arguments"]), {"city": "Paris"})
                messages.append({"role": "assistant", "content": text, "reasoning_content": thought, "tool_calls": calls})
                messages.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": RESULT})
            else:
                equal((text, calls), (TOLD, []))
        messages += [{"role": "assistant", "content": text, "reasoning_content": thought}, {"role": "user", "content": "What is the weather in Rome?"}]
        m = o.chat.completions.create(model="k3-mini", temperature=0, messages=messages, tools=[OPENAI_TOOL])
        equal(json.loads(m.choices[0].message.tool_calls[0].function.arguments), {"city": "Rome"})
        assert m.usage.prompt_tokens_details.cached_tokens > 0
        assert m.choices[0].message.tool_calls[0].id != calls_id(messages), "an id is used twice in a conversation"


def calls_id(messages):
    return next(c["id"] for m in messages for c in m.get("tool_calls") or [])


def a_tool_can_be_required_and_named(o, a):
    other = {"type": "function", "function": {"name": "get_time", "description": "Get the local time of a city.", "parameters": WEATHER}}
    for choice, names in (("required", {"get_weather", "get_time"}), ({"type": "function", "function": {"name": "get_time"}}, {"get_time"})):
        r = o.chat.completions.create(model="k3-mini", temperature=0, messages=[{"role": "user", "content": "Hello"}], tools=[OPENAI_TOOL, other],
                                      tool_choice=choice, max_tokens=400)
        call = r.choices[0].message.tool_calls[0]
        assert call.function.name in names
        assert isinstance(json.loads(call.function.arguments)["city"], str)
        equal(r.choices[0].finish_reason, "tool_calls")


def answers_keep_to_a_schema(o, a):
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}, "odd": {"type": "boolean"}, "kind": {"enum": ["small", "large"]}},
              "required": ["sum", "odd", "kind"], "additionalProperties": False}
    r = o.chat.completions.create(model="k3-mini", temperature=0, messages=[{"role": "user", "content": "What is 58 plus 67?"}], max_tokens=600,
                                  response_format={"type": "json_schema", "json_schema": {"name": "s", "strict": True, "schema": schema}})
    answer = json.loads(r.choices[0].message.content)
    equal(set(answer), {"sum", "odd", "kind"})
    assert isinstance(answer["sum"], int) and isinstance(answer["odd"], bool) and answer["kind"] in ("small", "large")


def sampling_is_free_and_seeded(o, a):
    ask = dict(model="k3-mini", messages=[{"role": "user", "content": "Tell me something."}], temperature=1.3, top_p=0.9, seed=7, max_tokens=40,
               presence_penalty=0.5, extra_body={"top_k": 50, "min_p": 0.01, "repetition_penalty": 1.1})
    first, second = (o.chat.completions.create(**ask).choices[0].message for _ in range(2))
    equal(first, second)
    r = o.chat.completions.create(**{**ask, "temperature": 0, "logprobs": True, "top_logprobs": 3, "reasoning_effort": "low"})
    for entry in r.choices[0].logprobs.content or []:
        equal(len(entry.top_logprobs), 3)
        assert abs(entry.logprob - entry.top_logprobs[0].logprob) < 10 and entry.top_logprobs[0].logprob >= entry.top_logprobs[1].logprob


def stop_strings_and_limits(o, a):
    ask = dict(model="k3-mini", temperature=0, messages=[{"role": "user", "content": "What is 58 plus 67?"}])
    r = o.chat.completions.create(**ask, stop=["= 1"])
    equal((r.choices[0].message.content, r.choices[0].finish_reason), ("58 + 67 ", "stop"))
    r = o.chat.completions.create(**ask, max_tokens=5)
    equal((r.choices[0].message.content or "", r.choices[0].finish_reason, r.usage.completion_tokens), ("", "length", 5))


def plain_completions(o, a):
    r = o.completions.create(model="k3-mini", prompt="The capital of France is", max_tokens=8, temperature=0)
    text = "".join(c.choices[0].text for c in o.completions.create(model="k3-mini", prompt="The capital of France is", max_tokens=8, temperature=0, stream=True))
    equal(text, r.choices[0].text)


def errors_are_the_clients_own(o, a):
    def refused(kind, call, word):
        try:
            call()
        except kind as e:
            assert word in str(e), str(e)
        else:
            raise AssertionError(f"{word}: nothing was refused")

    user = [{"role": "user", "content": "x"}]
    refused(openai.NotFoundError, lambda: o.chat.completions.create(model="nonsense", messages=user), "nonsense")
    refused(openai.BadRequestError, lambda: o.chat.completions.create(model="k3-mini", messages=[]), "messages")
    refused(openai.BadRequestError, lambda: o.chat.completions.create(model="k3-mini", messages=user, temperature=-1), "temperature")
    refused(openai.BadRequestError, lambda: list(o.chat.completions.create(model="k3-mini", stream=True, messages=[{"role": "user", "content": "word " * 40000}])), "")
    refused(anthropic.BadRequestError, lambda: a.messages.create(model="k3-mini", max_tokens=10, messages=[]), "messages")
    refused(anthropic.NotFoundError, lambda: a.messages.create(model="nonsense", max_tokens=10, messages=user), "nonsense")


def models_are_listed(o, a):
    equal([m.id for m in o.models.list()], ["k3-mini"])
    equal(o.models.retrieve("k3-mini").max_model_len, 16384)
    equal([m.id for m in a.models.list()], ["k3-mini"])


# ---- responses -------------------------------------------------------------------------------------------------------------


def responses_with_tools(o, a):
    given = [{"role": "user", "content": ASK}]
    r = o.responses.create(model="k3-mini", input=given, tools=[RESPONSES_TOOL], temperature=0)
    call = next(item for item in r.output if item.type == "function_call")
    equal((call.name, json.loads(call.arguments)), ("get_weather", {"city": "Paris"}))
    given += [item.model_dump(exclude_none=True) for item in r.output] + [{"type": "function_call_output", "call_id": call.call_id, "output": RESULT}]
    r = o.responses.create(model="k3-mini", input=given, tools=[RESPONSES_TOOL], temperature=0)
    equal((r.output_text, r.status), (TOLD, "completed"))
    text, last, numbers = "", None, []
    for event in o.responses.create(model="k3-mini", input=given, tools=[RESPONSES_TOOL], temperature=0, stream=True):
        text += event.delta if event.type == "response.output_text.delta" else ""
        last = event
        numbers.append(event.sequence_number)
    equal((text, last.type, numbers), (TOLD, "response.completed", list(range(len(numbers)))))
    equal(last.response.usage.output_tokens, r.usage.output_tokens)


# ---- messages --------------------------------------------------------------------------------------------------------------


def messages_with_tools_and_thinking(o, a):
    for stream in (False, True):
        messages = [{"role": "user", "content": ASK}]
        ask = dict(model="k3-mini", max_tokens=12000, extra_body=GREEDY, tools=[ANTHROPIC_TOOL], thinking={"type": "enabled", "budget_tokens": 10000})

        def answer():
            if not stream:
                return a.messages.create(messages=messages, **ask)
            with a.messages.stream(messages=messages, **ask) as s:
                return s.get_final_message()

        m = answer()
        equal(m.stop_reason, "tool_use")
        call = next(b for b in m.content if b.type == "tool_use")
        equal((call.name, call.input), ("get_weather", {"city": "Paris"}))
        assert any(b.type == "thinking" and b.thinking for b in m.content)
        messages += [{"role": "assistant", "content": m.content},
                     {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": RESULT}]}]
        m = answer()
        equal((m.stop_reason, "".join(b.text for b in m.content if b.type == "text")), ("end_turn", TOLD))
        counted = a.messages.count_tokens(model="k3-mini", messages=messages, tools=[ANTHROPIC_TOOL], thinking=ask["thinking"])
        equal(counted.input_tokens, m.usage.input_tokens + (m.usage.cache_read_input_tokens or 0))


def text_streams(o, a):
    with a.messages.stream(model="k3-mini", max_tokens=300, extra_body=GREEDY, messages=[{"role": "user", "content": "What is 58 plus 67?"}]) as s:
        equal("".join(s.text_stream), "58 + 67 = 125")


def main():
    server = Server("--quiet", "--strict-model", binary=sys.argv[1] if len(sys.argv) > 1 else "build/release/k3")
    o = openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0)
    a = anthropic.Anthropic(base_url=server.url, api_key="any", max_retries=0)
    checks = [whole_answers_think_apart, a_stream_joins_to_the_whole_answer, tools_over_several_turns, a_tool_can_be_required_and_named, answers_keep_to_a_schema,
              sampling_is_free_and_seeded, stop_strings_and_limits, plain_completions, errors_are_the_clients_own, models_are_listed, responses_with_tools,
              messages_with_tools_and_thinking, text_streams]
    failed = run(checks, o, a)
    status = server.stop()
    if status != 0:
        print(f"k3 serve ended with status {status}:\n" + "".join(server.log[-20:]))
    sys.exit(failed or status)


main()
