"""Every figure of the panel in one sentence, and what to do when it is bad (pure)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """`when_bad` begins with how one sees that it is bad."""

    title: str
    meaning: str
    when_bad: str


FIGURES: dict[str, Figure] = {
    "state": Figure(
        "State",
        "What the stage does: ready, busy, or a trouble that is named beside it.",
        "stalled or lost: the fleet restarts or redials it by itself; if it keeps happening, look at that "
        "machine's network and run fleetchat doctor.",
    ),
    "address": Figure(
        "Address",
        "Where the stage listens; 127.0.0.1 is a process of this machine.",
        "Another one than you expect: look at [[fleet.peers]] in fleet.toml.",
    ),
    "layers": Figure(
        "Layers",
        "Which layers of the model this stage computes, the first and the last.",
        "One stage has many more than its machine can bear: build the model in other stages.",
    ),
    "engine": Figure(
        "Engine",
        "How the stage keeps its KV cache, and the device that computes.",
        "masked with several chats at once: paged lets them share a pass, where a stage supports it.",
    ),
    "compute": Figure(
        "Compute",
        "Milliseconds that the stage computed for a batch, over the last minute: half of the batches took at "
        "most p50, 95 of 100 at most p95.",
        "Much higher than on the other stages: they wait for this one; give it fewer layers, more threads or "
        "a faster machine.",
    ),
    "queue": Figure(
        "Queue",
        "Milliseconds that a batch waited at the stage before it was computed.",
        "Higher than compute: this stage is the bottleneck while several chats write; see compute.",
    ),
    "network": Figure(
        "Network",
        "Milliseconds one way on the link into this stage, half of a measured round trip; the last row is "
        "the way back from the last stage.",
        "High on one leg: that link is slow or far; use a cable, or let more chats write at once, since they "
        "fill the waiting time.",
    ),
    "memory": Figure(
        "Memory",
        "What the peer's process holds in memory: its layers and the KV cache.",
        "Near what the machine has: lower [model] context or kv_cells, or use more stages.",
    ),
    "cells-live": Figure(
        "Live cells",
        "KV cells of tokens that count, one a token and chat on each stage.",
        "It nears what was granted: close chats, or raise kv_cells.",
    ),
    "cells-dead": Figure(
        "Dead cells",
        "KV cells of rejected drafts and dropped text that still take room; only the masked engine has any.",
        "More than the live ones: a compaction follows at the end of the reply; a lower draft depth makes "
        "fewer.",
    ),
    "cells-free": Figure(
        "Free cells",
        "KV cells that were granted and are not taken.",
        "Near 0: the next chat waits, or an idle one loses its cells; close chats or raise kv_cells.",
    ),
    "heat": Figure(
        "Heat",
        "How many times slower than its own best the stage was over the last 40 s, on like work.",
        "HOT, from 1.5 on: the processor throttles, or another program uses its cores; cool it, close "
        "programs, plug in the power supply.",
    ),
    "speed": Figure(
        "Tokens/s",
        "Tokens that were written in a second, over the same last two seconds for all chats: they add up.",
        "Low: look for the stage with the highest compute and for the leg with the highest network time.",
    ),
    "waiting": Figure(
        "Waiting",
        "Replies that wait until there are cells for them.",
        "Above 0 for long: stop a reply, close chats, or raise kv_cells.",
    ),
    "evictions": Figure(
        "Evictions",
        "How often an idle chat lost its cells to another one; its next reply reads everything anew.",
        "It keeps growing: there are more chats than room; raise kv_cells or lower [model] context.",
    ),
    "forks": Figure(
        "Shared starts",
        "Chats that began with the cells of another one because their text begins alike.",
        "It is never bad: it saves reading the same text twice.",
    ),
    "recoveries": Figure(
        "Recoveries",
        "How often a stage was lost and replaced while the answers went on.",
        "It keeps growing: see the events for which stage it is, and that machine's log (fleetchat paths "
        "--logs).",
    ),
    "moves": Figure(
        "Moves",
        "How often the fleet went over to other peers or another cut while the answers went on.",
        "It is never bad: you asked for it, and the events say what became of it.",
    ),
    "drafter": Figure(
        "Drafter",
        "What guesses tokens ahead: ngram looks the text up, model asks a small model, none guesses nothing.",
        "It dropped to none: the drafter failed, and the log says why.",
    ),
    "acceptance": Figure(
        "Acceptance",
        "Which share of the guessed tokens were right, since the fleet was opened; the bars are the last "
        "rounds.",
        "Below a third: guessing brings little for this text; adaptive depth lowers itself, drafter none "
        "switches it off.",
    ),
    "depth": Figure(
        "Depth",
        "How many tokens the last round guessed; adaptive depth takes the number that promises most tokens "
        "a second.",
        "0 all the time: guesses do not pay here, which costs nothing.",
    ),
    "accepted": Figure(
        "Accepted length",
        "How many guesses of a round were right, as shares of all rounds that guessed.",
        "Mostly 0: see acceptance.",
    ),
    "rounds": Figure(
        "Rounds",
        "How often the chain was passed for a token or for a token with guesses.",
        "Nearly as many as tokens: guesses do not save passes.",
    ),
    "tokens": Figure(
        "Tokens",
        "Tokens of the chat that are committed, prompt and replies.",
        "Near the context: the chat must end soon; begin a new one.",
    ),
    "rollbacks": Figure(
        "Rollbacks",
        "How often wrong guesses, a stop or an edit were taken back on all stages.",
        "Nearly as many as rounds: see acceptance.",
    ),
    "masked": Figure(
        "Masked cells",
        "Cells that rollbacks hid from attention, on each stage; they are not copied or moved.",
        "Growing fast: with the masked engine they become dead cells; see there.",
    ),
    "compactions": Figure(
        "Compactions",
        "How often the dead cells of a chat were removed.",
        "Many in a reply: the context is nearly full of dead cells; a lower draft depth makes fewer.",
    ),
    "lane": Figure(
        "Pipeline",
        "What the stage did when: a block is a slice of a chat, with its tab's colour and number.",
        "Long gaps while several chats write: the stage waits for another one, or for the network.",
    ),
    "bubbles": Figure(
        "Bubbles",
        "Which share of the shown time the stage was idle, as far as it is known completely.",
        "High with one chat: that is how a chain is, a second chat fills it. High with several: they share a "
        "pass because that was measured to be faster, or the slowest stage or the network holds them up.",
    ),
    "event": Figure(
        "Event",
        "Something that befell a stage, a chat or the fleet, with its time of day.",
        "F shows one kind only, C copies what is shown.",
    ),
}
