"""The pages of a comparison: Markdown, CSV and a figure, from its JSON alone."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from features import feature_table

Row = dict[str, Any]
COLUMNS = ("case", "tool", "version", "seconds", "ratio", "ratio_as_accurate", "megabytes", "missed", "failed",
           "memory", "note", "began", "command")  # fmt: skip
HOLDS = {"bounded": "as much as it is told", "blocks": "blocks of the data", "whole": "the whole matrix",
         "square": "an n x n matrix"}  # fmt: skip
COLOURS = {"streampca": "#c2410c", "blocks": "#2563a8", "whole": "#9db4c8", "square": "#9db4c8"}
# Where accuracy ends: below this the truth itself is rounded.
LEAST = 1e-15


def write_pages(content: dict[str, Any], kept: Path, figure: Path) -> None:
    """Write kept.md and kept.csv beside the JSON, and the figure."""
    kept.with_suffix(".md").write_text(markdown(content))
    with kept.with_suffix(".csv").open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        table.writeheader()
        for name, case in content["cases"].items():
            table.writerows({"case": name} | row for row in case["rows"])
    draw(content, figure)
    print(f"\nwritten: {kept.with_suffix('.md')}, .csv and .json; {figure}")


# Markdown


def markdown(content: dict[str, Any]) -> str:
    about = content["about"]
    text = [
        f"Measured {about['date']} on {about['cores']} cores ({about['processor']}), {about['threads']} threads for "
        f"every tool, Python {about['python']}: each tool in a process of its own, from the shell to results on disk; "
        f"files cached by the system, numba's compiled code in its cache; in the order of the CSV, stopped after "
        f"{about['limit']:.0f} s. Peak is that of all processes of a tool. 1 - MEV is the share of the true leading "
        "subspace (float64) that was missed. Ratios are to the seconds of the first row, and to those of the fastest "
        "run of streampca that missed no more (below 1e-12 counts as the same).",
        f"Debian's programs use {Path(about['blas']).name} as BLAS ({about['blas']}).",
    ]
    for case in content["cases"].values():
        text += ["\n".join([f"### {case['title']}", "", *table(case["rows"])]), standing(case["rows"])]
    return "\n\n".join([*text, "### What each can do", feature_table()]) + "\n"


def table(rows: list[Row]) -> list[str]:
    """Return the rows as a table: streampca first, then by time, those without one last."""
    head = ["tool", "seconds", "ratio", "at its accuracy", "peak MB", "1 - MEV", "holds"]
    lines = [f"| {' | '.join(head)} |", "| --- | ---: | ---: | ---: | ---: | ---: | --- |"]
    for row in ordered(rows):
        name = f"{row['tool']}, {row['version']}" if row["version"] else row["tool"]
        if "missed" not in row:
            lines.append(f"| {name} | {row['failed'].replace('|', '/')} | | | | | {holds(row)} |")
            continue
        numbers = [f"{row['seconds']:.1f}", ratio(row.get("ratio")), ratio(row.get("ratio_as_accurate"))]
        numbers += [f"{row['megabytes']:.0f}", f"{row['missed']:.0e}"]
        lines.append(f"| {name} | {' | '.join(numbers)} | {holds(row)} |")
    return lines


def ordered(rows: list[Row]) -> list[Row]:
    def place(row: Row) -> tuple[bool, bool, float]:
        return not ours(row), "missed" not in row, 0.0 if ours(row) else row.get("seconds", 0.0)

    return sorted(rows, key=place)


def ours(row: Row) -> bool:
    return row["tool"].startswith("streampca")


def ratio(value: float | None) -> str:
    """Return two digits, or more before the point."""
    if value is None:
        return "-"
    return f"{value:.{0 if value >= 10 else 1 if value >= 1 else 2}f}"


def holds(row: Row) -> str:
    return HOLDS[row["memory"]] + (f"; {row['note']}" if row["note"] else "")


def standing(rows: list[Row]) -> str:
    """Say in a line or two where streampca is not first."""
    first = rows[0]
    if "missed" not in first:
        return f"streampca has no time here: {first['failed']}."
    peers = [row for row in rows if not ours(row) and "missed" in row]
    own = [row for row in rows if ours(row) and "missed" in row]

    def named(chosen: list[Row]) -> str:
        return "; ".join(
            f"{row['tool']} ({row['seconds']:.1f} s, {row['megabytes']:.0f} MB, misses {row['missed']:.0e}, holds "
            f"{HOLDS[row['memory']]})"
            for row in sorted(chosen, key=lambda row: row["seconds"])
        )

    faster = [row for row in peers if row["ratio"] < 1]
    said = [f"Faster than streampca: {named(faster)}." if faster else "No other tool was faster than streampca."]
    as_good = [row for row in peers if row.get("ratio_as_accurate", 0.0) < 1]
    if as_good:
        said.append(f"Faster than any run of streampca that misses no more: {named(as_good)}.")
    else:
        said.append("For the accuracy that each of them reached, a run of streampca was faster.")
    least = min(row["megabytes"] for row in own)
    smaller = [row for row in peers if row["megabytes"] < least]
    if smaller:
        said.append(f"In less memory than any run of streampca ({least:.0f} MB): {named(smaller)}.")
    return " ".join(said)


# The figure


def draw(content: dict[str, Any], path: Path) -> None:
    """Draw seconds and accuracy of all tools, one group a case, streampca first and then by time."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    groups = [(case["title"], [row for row in ordered(case["rows"]) if "seconds" in row]) for case in
              content["cases"].values()]  # fmt: skip
    heights = [len(rows) + 1.2 for _, rows in groups]
    figure, axes = plt.subplots(
        len(groups), 2, figsize=(11, 0.27 * sum(heights) + 1.2), sharex="col", squeeze=False, layout="constrained",
        gridspec_kw={"height_ratios": heights, "width_ratios": [1.5, 1]},
    )  # fmt: skip
    for (title, rows), (left, right) in zip(groups, axes, strict=True):
        draw_times(left, title, rows)
        draw_accuracy(right, rows)
    seconds = [row["seconds"] for _, rows in groups for row in rows]
    # Room for what is written beside the longest bar.
    axes[-1][0].set_xlim(min(1.0, 0.7 * min(seconds)), 8 * max(seconds))
    for ax in axes[-1]:
        ax.tick_params(axis="x", labelsize=8)
    axes[-1][0].set_xlabel("seconds, from the shell to results on disk (log)")
    axes[-1][1].set_xlabel("1 - MEV: share of the true subspace missed (log)")
    about = content["about"]
    names = {
        "streampca": "streampca",
        "blocks": "peer, holds blocks of the data",
        "whole": "peer, holds a whole matrix (all of it, or n x n)",
    }
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[kind]) for kind in names]
    title = f"{about['threads']} threads on {about['cores']} cores; beside the bars, peak memory"
    figure.legend(handles, names.values(), loc="outside upper center", ncols=3, frameon=False, fontsize=9, title=title)
    figure.savefig(path, dpi=130, metadata={"Software": None})
    plt.close(figure)


def colour(row: Row) -> str:
    return COLOURS["streampca" if ours(row) else row["memory"]]


def draw_times(ax: Any, title: str, rows: list[Row]) -> None:
    places = range(len(rows))
    done = ["missed" in row for row in rows]
    ax.barh(
        places, [row["seconds"] for row in rows], height=0.72,
        color=[colour(row) if ok else "white" for row, ok in zip(rows, done, strict=True)],
        edgecolor=[colour(row) for row in rows],
    )  # fmt: skip
    for place, row in zip(places, rows, strict=True):
        size = f"{row['megabytes'] / 1000:.1f} GB" if row["megabytes"] >= 1000 else f"{row['megabytes']:.0f} MB"
        text = f"{row['seconds']:.1f} s, {size}" if "missed" in row else row["failed"]
        ax.annotate(text, (row["seconds"], place), (3, 0), textcoords="offset points", va="center", fontsize=7.5)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_yticks(places, [row["tool"].replace("`", "") for row in rows], fontsize=8.5)
    for label, row in zip(ax.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if ours(row) else "normal")
    ax.set_title(title, fontsize=9.5, loc="left", fontweight="bold")
    tidy(ax, rows)


def draw_accuracy(ax: Any, rows: list[Row]) -> None:
    for place, row in enumerate(rows):
        if "missed" in row:
            value = max(row["missed"], LEAST)
            ax.plot([LEAST / 10, value], [place, place], color="#d5d9de", linewidth=1, zorder=1)
            ax.plot(value, place, "o", color=colour(row), markersize=6, zorder=2)
            ax.annotate(f"{row['missed']:.0e}", (value, place), (6, 0), textcoords="offset points", va="center",
                        fontsize=7.5)  # fmt: skip
    ax.set_xscale("log")
    ax.set_xlim(LEAST / 10, 30)
    ax.set_yticks([])
    tidy(ax, rows)


def tidy(ax: Any, rows: list[Row]) -> None:
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color="#e6e8eb", linewidth=0.6)
    ax.set_axisbelow(True)
