"""Real clients against the server: LangChain, lm-evaluation-harness, schemathesis; and the default model through the SDK."""

import json
import os
import subprocess
import sys

import openai
import pytest
from serving import Server


@pytest.mark.slow
def test_langchain(server):
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model="tiny", base_url=server.url + "/v1", api_key="x", temperature=0, max_tokens=12, max_retries=0)
    whole = model.invoke([("system", "Be brief."), ("user", "Hi")])
    assert len(whole.content) == 12
    assert whole.usage_metadata["output_tokens"] == 12
    assert whole.response_metadata["finish_reason"] == "length"
    chunks = list(model.stream([("system", "Be brief."), ("user", "Hi")]))
    assert "".join(c.content for c in chunks) == whole.content
    assert len(model.batch(["a", "b", "c"])) == 3


TASK = """
task: tiny_choice
dataset_path: json
dataset_kwargs: {{data_files: {data}}}
output_type: multiple_choice
test_split: train
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
metric_list: [{{metric: acc}}]
"""


@pytest.mark.slow
def test_lm_evaluation_harness(server, tmp_path):
    """A likelihood task of our own: local-completions sends echo and logprobs."""
    rows = [{"question": f"{a} and {b} is", "choices": [" one", " two", " many"], "answer": (a + b) % 3}
            for a in range(3) for b in range(2)]
    (tmp_path / "rows.json").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "tiny_choice.yaml").write_text(TASK.format(data=tmp_path / "rows.json"))
    command = [sys.executable, "-m", "lm_eval", "--model", "local-completions", "--tasks", "tiny_choice", "--include_path", tmp_path,
               "--model_args", f"model=tiny,base_url={server.url}/v1/completions,tokenizer_backend=remote,num_concurrent=4,max_retries=1,max_length=2048",
               "--output_path", tmp_path / "out", "--log_samples", "--batch_size", "1"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600,
                          env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")})
    assert done.returncode == 0, done.stderr[-3000:]
    results = list((tmp_path / "out").rglob("results*.json"))
    assert json.loads(results[0].read_text())["results"]["tiny_choice"]["acc,none"] >= 0
    samples = list((tmp_path / "out").rglob("samples*.jsonl"))[0].read_text().splitlines()
    assert len(samples) == len(rows)


@pytest.mark.slow
def test_schemathesis(server, tmp_path):
    """Requests generated from /openapi.json, valid and invalid: no 5xx, no undocumented answer."""
    config = tmp_path / "schemathesis.toml"
    config.write_text("[checks]\npositive_data_acceptance.enabled = false\n")  # the document cannot express rules between fields
    # A drawn search may spend millions of tokens, which takes minutes; tests/python/test_server_search.py has requests of its own.
    for chosen in (["--exclude-path", "/v1/search", "--phases", "examples,coverage,fuzzing"], ["--include-path", "/v1/search", "--phases", "examples,coverage"]):
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", config, "run", server.url + "/openapi.json", *chosen,
                   "--max-examples", "25", "--request-timeout", "60", "--seed", "1", "--generation-database", "none"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=1200, cwd=tmp_path)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert server.get("/health")[0] == 200


@pytest.mark.slow
def test_default_model(millrace, default_model):
    with Server(default_model, "--parallel", "8", "--ctx", "2048") as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="x", max_retries=0)
        name = client.models.list().data[0].id
        question = "Name three colours."
        answer = client.chat.completions.create(
            model=name, messages=[{"role": "user", "content": question}], max_tokens=12, temperature=0)
        alone = millrace.json("run", "-m", default_model, "-n", 12, "--temp", 0, "--threads", 1, question)["text"]
        assert answer.choices[0].message.content[:20] == alone[:20], "the server says what `run` says"
        emoji = client.chat.completions.create(
            model=name, messages=[{"role": "user", "content": "Repeat: 你好 🌍 é"}], max_tokens=30, temperature=0, stream=True)
        for chunk in emoji:
            for choice in chunk.choices:
                (choice.delta.content or "").encode()  # every piece is valid text on its own
        made = client.embeddings.create(model=name, input=["A cat sat.", "A kitten was sitting.", "Stock markets fell."])
        a, b, c = (d.embedding for d in made.data)
        assert sum(x * y for x, y in zip(a, b)) > sum(x * y for x, y in zip(a, c))
