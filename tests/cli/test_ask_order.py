"""Answers that come at the same time are written one after the other."""

from __future__ import annotations

import pytest
import trio

from fleetchat.cli.ask_order import OrderedAnswers
from fleetchat.cli.ask_output import AnswerWriter

pytestmark = pytest.mark.trio


async def written(*steps: tuple[str, int, str], conversations: int = 3) -> str:
    """What reaches stdout when conversations do these steps in this order."""
    pieces: list[str] = []
    writer = AnswerWriter(pieces.append)
    order = OrderedAnswers(writer, conversations)
    streams = [order.stream(number) for number in range(conversations)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        for step, number, text in steps:
            match step:
                case "begin":
                    streams[number].begin_answer()
                case "say":
                    streams[number].put(text)
                case "end":
                    streams[number].end_answer()
                    streams[number].end()
            await writer.flush()
        await writer.close()
    return "".join(pieces)


async def test_the_first_conversation_streams_and_the_others_wait() -> None:
    assert (
        await written(
            ("begin", 1, ""),
            ("say", 1, "one "),
            ("begin", 0, ""),
            ("say", 0, "zero "),
            ("say", 1, "more"),
            ("say", 0, "done"),
        )
        == "zero done"
    )


async def test_answers_come_in_order_and_separated_whoever_ends_first() -> None:
    assert (
        await written(
            ("begin", 2, ""),
            ("say", 2, "two"),
            ("end", 2, ""),
            ("begin", 1, ""),
            ("say", 1, "one"),
            ("begin", 0, ""),
            ("say", 0, "zero"),
            ("end", 0, ""),
            ("say", 1, "!"),
            ("end", 1, ""),
        )
        == "zero\n\n---\n\none!\n\n---\n\ntwo\n"
    )


async def test_a_conversation_without_an_answer_leaves_no_gap() -> None:
    assert (
        await written(("begin", 1, ""), ("say", 1, "one"), ("end", 0, ""), ("end", 1, ""), conversations=2)
        == "one\n"
    )


async def test_without_a_writer_nothing_is_kept() -> None:
    order = OrderedAnswers(None, 2)
    order.stream(1).put("x")
    order.stream(0).end()
    order.stream(1).end()
