"""The Chinese pages follow the English ones: the same headings in the same order, the same commands, the same names.

If a test fails here: an English page has changed. Change the Chinese page likewise (commands are copied unchanged), and
the map of headings below.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FENCED = re.compile(r"^```(?P<kind>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = ("kubectl", "dovetail", ".venv/bin/dovetail", "make", "docker", "helm", "kill")
PAGES: dict[str, dict[str, str]] = {  # page -> English heading -> Chinese heading
    "try-it.md": {
        "Options": "选项",
        "Place, plan and explain": "放置、预演、解释",
        "Kill the scheduler": "杀掉调度器",
        "Examples": "示例",
    },
    "migrate-from-hami.md": {
        "1. Look": "1. 先看差异",
        "2. Side by side": "2. 并行运行",
        "3. Switch the name": "3. 接管调度器名",
        "The webhook": "Webhook",
        "Behind kube-scheduler": "接在 kube-scheduler 后面",
        "4. Verify": "4. 核对",
        "5. Clean up": "5. 清理",
        "The way back": "回退",
    },
    "reasons.md": {
        "The nearest miss": "差得最少的节点",
        "Rules of the node": "节点的规则",
        "Resources and volumes of the node": "节点的资源和存储卷",
        "All devices of the node": "节点上的全部卡",
        "One card": "单张卡",
        "The pod or its group": "Pod 本身或它的组",
    },
    "live.md": {
        "Install": "安装",
        "Why a pod waits": "Pod 为什么在等",
        "When a node takes no new GPU pods": "节点为什么不接新的 GPU Pod",
    },
    "policies.md": {
        "Choosing a profile": "怎么选策略",
        "Node policies": "节点策略",
        "Device policies": "GPU 策略",
        "What differs from HAMi on purpose": "和 HAMi 有意不同的地方",
    },
}
WHOLE = ("try-it.md", "migrate-from-hami.md", "reasons.md")  # pages of which every section is there
SAME_COMMANDS = ("try-it.md", "migrate-from-hami.md", "live.md")
SAME_NAMES = ("reasons.md", "live.md")  # the names in the first column of the tables


def sections(text: str) -> dict[str, str]:
    """Second-level heading -> what stands below it."""
    parts = re.split(r"(?m)^## (.+)$", text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def pages(name: str) -> tuple[dict[str, str], dict[str, str]]:
    """The sections of the English page and of the Chinese one."""
    english, chinese = ROOT / "docs" / name, ROOT / "docs" / "zh" / name
    return sections(english.read_text(encoding="utf-8")), sections(chinese.read_text(encoding="utf-8"))


def commands(text: str, in_sentences: bool = True) -> list[str]:
    """The commands in code, in order, without prompts, comments and output. `in_sentences`: also inline code."""
    found = []
    blocks = [match["body"] for match in FENCED.finditer(text)]
    indented = re.findall(r"(?m)^ {4,}(\S.*)$", FENCED.sub("", text))
    inline = re.findall(r"`([^`\n]+)`", FENCED.sub("", text)) if in_sentences else []
    for line in (*(line for block in blocks for line in block.splitlines()), *indented, *inline):
        words = line.strip().removeprefix("$ ").partition(" #")[0].split()
        if words and words[0] in PROGRAMS and len(words) > 1:
            found.append(" ".join(words))
    return found


def names(text: str) -> list[str]:
    """The code in the first cell of each row of the tables."""
    rows = re.findall(r"(?m)^\| (`[^|]+) \|", text)
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


@pytest.mark.parametrize("name", PAGES)
def test_headings_are_in_step(name: str) -> None:
    english, chinese = pages(name)
    of_english = [heading for heading in english if heading in PAGES[name] or name in WHOLE]
    assert of_english == list(PAGES[name]), f"docs/{name}: the English headings have changed"
    assert list(chinese) == list(PAGES[name].values()), f"docs/zh/{name}"


@pytest.mark.parametrize("name", SAME_COMMANDS)
def test_commands_are_in_step(name: str) -> None:
    english, chinese = pages(name)
    for heading, translated in PAGES[name].items():
        wanted, there = commands(english[heading]), commands(chinese[translated])
        assert there == wanted, f"docs/zh/{name}, section {translated}: copy the commands of docs/{name}, {heading}"


@pytest.mark.parametrize("name", SAME_NAMES)
def test_tables_have_the_same_rows(name: str) -> None:
    english, chinese = pages(name)
    for heading, translated in PAGES[name].items():
        assert names(chinese[translated]) == names(english[heading]), f"docs/zh/{name}, section {translated}"


def test_policies_on_the_chinese_page_exist() -> None:
    english, chinese = pages("policies.md")
    for heading in ("Node policies", "Device policies"):
        there = names(chinese[PAGES["policies.md"][heading]])
        assert len(there) >= 5
        assert set(there) <= set(names(english[heading])) | set(names(english.get("Joint policies", "")))


def test_commands_of_the_chinese_readme_are_those_of_the_english_one() -> None:
    """It is shorter: each command that it shows stands in the English README."""
    english = (ROOT / "README.md").read_text(encoding="utf-8")
    chinese = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")
    there = commands(chinese, in_sentences=False)
    assert len(there) >= 4
    assert [command for command in there if command not in commands(english)] == []


def test_chinese_pages_are_chinese_and_listed() -> None:
    index = (ROOT / "docs" / "zh" / "README.md").read_text(encoding="utf-8")
    for name in PAGES:
        text = (ROOT / "docs" / "zh" / name).read_text(encoding="utf-8")
        assert f"({name})" in index
        prose = re.sub(r"`[^`\n]*`|\]\([^)]*\)", "", FENCED.sub("", text))
        assert len(re.findall(r"[一-鿿]", prose)) > len(re.findall(r"[A-Za-z]{2,}", prose)), name


def test_a_changed_command_is_found() -> None:
    text = (
        "```text\n$ kubectl apply -f a.yaml  # comment\npod/a created\n```\n\n    make demo\n\n`dovetail plan -f x`\n"
    )
    assert commands(text) == ["kubectl apply -f a.yaml", "make demo", "dovetail plan -f x"]
    assert commands(text.replace("a.yaml", "b.yaml")) != commands(text)
