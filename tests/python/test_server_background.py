"""Background responses with OpenAI's own client: they go on without it, and can be read again from any event."""

import time

import openai
import pytest

from serving import Server

ASK = {"model": "tiny", "input": "Say hello.", "temperature": 0, "max_output_tokens": 40}


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0)


def finished(client, response_id, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        response = client.responses.retrieve(response_id)
        if response.status != "in_progress":
            return response
        time.sleep(0.02)
    raise AssertionError("never finished")


def text_of(events):
    return "".join(e.delta for e in events if e.type == "response.output_text.delta")


def test_polling(client):
    plain = client.responses.create(**ASK)
    begun = client.responses.create(**ASK, background=True)
    assert begun.status == "in_progress" and begun.background
    done = finished(client, begun.id)
    assert (done.status, done.output_text, done.usage.output_tokens) == (plain.status, plain.output_text, plain.usage.output_tokens)


def test_a_stream_is_taken_up_again(client):
    plain = client.responses.create(**ASK)
    first = []
    with client.responses.create(**ASK, background=True, stream=True) as stream:
        for event in stream:
            first.append(event)
            if event.type == "response.output_text.delta":
                break  # the client leaves
    assert first[0].type == "response.created"
    rest = list(client.responses.retrieve(first[0].response.id, stream=True, starting_after=first[-1].sequence_number))
    numbers = [e.sequence_number for e in first + rest]
    assert numbers == list(range(len(numbers)))
    assert text_of(first + rest) == plain.output_text
    assert rest[-1].response.output_text == plain.output_text
    again = list(client.responses.retrieve(first[0].response.id, stream=True))
    assert text_of(again) == plain.output_text


def test_cancel_and_delete(server, client):
    with client.responses.create(**{**ASK, "max_output_tokens": 400}, background=True, stream=True) as stream:
        begun = next(iter(stream))
        stopped = client.responses.cancel(begun.response.id)
        list(stream)  # ends
    assert stopped.status in ("cancelled", "completed", "incomplete")  # it may have ended already
    assert server.until(lambda: server.metric("vllm:num_requests_running") == 0)
    assert server.request("DELETE", f"/v1/responses/{begun.response.id}")[2] == {"id": begun.response.id, "object": "response", "deleted": True}
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(begun.response.id)


def test_a_cancelled_response_keeps_its_output(client):
    events, stopped = [], None
    with client.responses.create(**{**ASK, "max_output_tokens": 2000}, background=True, stream=True) as stream:
        for event in stream:
            events.append(event)
            if stopped is None and text_of(events):
                stopped = client.responses.cancel(events[0].response.id)
    if stopped.status != "cancelled":
        pytest.skip("it had ended")
    assert events[-1].type == "response.cancelled" and events[-1].sequence_number == len(events) - 1
    again = list(client.responses.retrieve(stopped.id, stream=True))
    assert (again[-1].type, text_of(again)) == ("response.cancelled", text_of(events))
    for response in (stopped, client.responses.retrieve(stopped.id)):
        assert response.status == "cancelled" and response.output[-1].status == "incomplete"
        assert response.output_text == text_of(events) != ""
        assert response.usage.output_tokens >= 1 and response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


@pytest.mark.parametrize("method, path, status", [
    ("GET", "/v1/responses/resp_0", 404), ("GET", "/v1/responses/", 404), ("POST", "/v1/responses/resp_0", 405), ("POST", "/v1/responses/resp_0/cancel", 404), ("DELETE", "/v1/responses/resp_0", 404)])
def test_unknown_ids(server, method, path, status):
    assert server.request(method, path, {} if method == "POST" else None)[0] == status


def test_bad_starting_after(server, client):
    begun = client.responses.create(**ASK, background=True)
    finished(client, begun.id)
    for value in ("-1", "x", "99999", "999999999999999999999"):
        status, _, answer = server.get(f"/v1/responses/{begun.id}?stream=true&starting_after={value}")
        assert (status, answer["error"]["param"]) == (400, "starting_after"), value


def test_only_the_key_that_began_it_finds_it(tiny_chat, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("ann key-of-ann-1\nben key-of-ben-1\n")
    with Server(tiny_chat, "--api-key-file", keys) as server:
        ann, ben = (openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0) for key in ("key-of-ann-1", "key-of-ben-1"))
        begun = ann.responses.create(**ASK, background=True)
        assert finished(ann, begun.id).status in ("completed", "incomplete")
        for act in (ben.responses.retrieve, ben.responses.cancel, ben.responses.delete):
            with pytest.raises(openai.NotFoundError):
                act(begun.id)
