"""What commands print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from streampca.errors import redacted


def print_pairs(pairs: list[tuple[str, str]]) -> None:
    """Print names and texts in two columns."""
    width = max(len(name) for name, _ in pairs)
    for name, text in pairs:
        click.echo(f"{name:<{width}}  {text}")


def table_cell(value: Any) -> str:
    """Return what one cell of a table holds: on one line, and quoted where readers would take a quote for one."""
    if not isinstance(value, str):
        return f"{value:.9g}"
    text = " ".join(value.split())
    return '"' + text.replace('"', '""') + '"' if '"' in text else text


def print_plan(plan: Any, as_json: bool) -> None:
    """Print what would be done: a plan, or one with its costs."""
    if as_json:
        click.echo(json.dumps(plan.facts()))
    else:
        print_pairs(plan.lines())


COLUMNS = ("explained_variance", "explained_variance_ratio")
KERNEL_COLUMNS = (*COLUMNS, "certificate", "estimated_error")


def print_found(found: Any, attributes: dict[str, Any], path: str | Path, as_json: bool) -> None:
    """Print what a fit of any kind found."""
    from streampca.models.dataset import error_name

    kind = attributes["kind"]
    columns = {name: getattr(found, name) for name in (KERNEL_COLUMNS if kind == "kpca" else COLUMNS)}
    if kind == "kpca":
        print_kernel(columns, attributes, path, as_json)
        return
    if found.certificate is not None:
        columns[error_name(found.certificate_method)] = found.certificate
    if kind == "pca":
        print_result(columns, found.genotype_eigenvalue if found.genotypes else None, attributes, path, as_json)
    else:
        print_latent(columns, attributes, path, as_json)


def print_stored(path: str | Path, as_json: bool) -> None:
    """Print what a result holds."""
    from streampca.results.schema import error_in
    from streampca.results.store import load

    result = load(path)
    path = redacted(str(path))
    if result.attrs["kind"] == "pcr":
        from streampca.cli.regressing import print_stored_regression

        print_stored_regression(result, path, as_json)
        return
    if result.attrs["kind"] == "kpca":
        print_kernel({name: result[name].values for name in KERNEL_COLUMNS}, result.attrs, path, as_json)
        return
    error = error_in(result)
    columns = {name: result[name].values for name in (*COLUMNS, *([] if error is None else [error]))}
    if result.attrs["kind"] != "pca":
        print_latent(columns, result.attrs, path, as_json)
        return
    eigenvalues = result["eigenvalue"].values if "eigenvalue" in result else None
    print_result(columns, eigenvalues, result.attrs, path, as_json)


def print_result(columns: dict[str, Any], eigenvalues: Any, a: dict[str, Any], path: str | Path, as_json: bool) -> None:
    """Print the table of components with their certificates, and what the run took; genotypes have eigenvalues too."""
    from streampca.results.schema import certificate_method, error_in
    from streampca.sweep.memory import show_bytes

    if as_json:
        keys = ("kind", "source", "n_samples", "solver", "total_variance", "n_sweeps", "bytes_read", "seconds")
        facts = {key: a[key] for key in (*keys, "peak_memory_bytes", "advice")}
        facts["notes"] = json.loads(a.get("notes", "[]"))
        facts["certificate_method"] = certificate_method(a)
        if eigenvalues is not None:
            columns = columns | {"eigenvalue": eigenvalues}
        table = {name: column.tolist() for name, column in columns.items()}
        click.echo(json.dumps({"result": str(path), **facts, "converged": bool(a["converged"]), **table}))
        return
    click.echo(f" PC    eigenvalue    share  together  {error_in(columns):>11}")
    together = 0.0
    if eigenvalues is not None:
        columns = columns | {"explained_variance": eigenvalues}
    for i, (value, share, bound) in enumerate(zip(*columns.values(), strict=True), start=1):
        together += share
        click.echo(f"{i:3d}  {value:12.6g}  {share:7.2%}  {together:8.2%}  {bound:11.1e}")
    _print_error_note(a)
    warm = " after a warm start on a tenth of the data" if a.get("warm_start_seconds") else ""
    click.echo(
        f"{a['solver']}: {a['n_sweeps']} sweeps{warm}, {show_bytes(a['bytes_read'])} read, {a['seconds']:.1f} s, "
        f"peak memory {show_bytes(a['peak_memory_bytes'])}"
    )
    if a.get("genotypes"):
        click.echo(
            f"{a['n_samples']} samples, {a['n_features']} variants; eigenvalues of X X' / m for m variants, as in plink"
        )
    for note in [*filter(None, [a["advice"]]), *json.loads(a.get("notes", "[]"))]:
        click.echo(f"note: {note}")
    click.echo(f"result: {path}")


def _print_error_note(a: dict[str, Any]) -> None:
    """Print a line where the rounding of certificates was not measured."""
    from streampca.results.schema import ERROR_NOTES, certificate_method

    method = certificate_method(a)
    if method in ERROR_NOTES:
        click.echo(ERROR_NOTES[method])


def print_latent(columns: dict[str, Any], a: dict[str, Any], path: str | Path, as_json: bool) -> None:
    """Print the table of components of a latent model, what it came to, and what the run took."""
    from streampca.results.schema import certificate_method, error_in
    from streampca.sweep.memory import show_bytes

    error = error_in(columns)
    if as_json:
        keys = (
            "kind", "source", "n_samples", "n_features", "method", "total_log_likelihood", "n_missing", "n_iterations",
            "change", "n_sweeps", "bytes_read", "seconds", "peak_memory_bytes", "advice",
        )  # fmt: skip
        facts = {key: a[key] for key in keys} | {key: a[key] for key in ("noise_variance", "criterion") if key in a}
        if error is not None:
            facts["certificate_method"] = certificate_method(a)
        table = {name: column.tolist() for name, column in columns.items()}
        notes = json.loads(a["notes"])
        click.echo(
            json.dumps({"result": str(path), **facts, "converged": bool(a["converged"]), "notes": notes, **table})
        )
        return
    click.echo("  i      variance    share  together" + ("" if error is None else f"  {error:>11}"))
    together = 0.0
    for i, (value, share) in enumerate(zip(*(columns[name] for name in COLUMNS), strict=True)):
        together += share
        bound = "" if error is None else f"  {columns[error][i]:11.1e}"
        click.echo(f"{i + 1:3d}  {value:12.6g}  {share:7.2%}  {together:8.2%}{bound}")
    if error is not None:
        _print_error_note(a)
    noise = f"noise variance {a['noise_variance']:.6g}, " if "noise_variance" in a else ""
    per_sample = a["total_log_likelihood"] / a["n_samples"]
    click.echo(f"{noise}log-likelihood {a['total_log_likelihood']:.10g}, {per_sample:.6g} a sample")
    share = a["n_missing"] / (a["n_samples"] * a["n_features"])
    click.echo(f"{a['n_samples']} samples x {a['n_features']} features, {share:.3%} missing")
    steps = f"EM, {a['n_iterations']} iterations" if a["method"] == "em" else "closed form"
    click.echo(
        f"{steps}: {a['n_sweeps']} sweeps in all, {show_bytes(a['bytes_read'])} read, {a['seconds']:.1f} s, "
        f"peak memory {show_bytes(a['peak_memory_bytes'])}"
    )
    for note in [*filter(None, [a["advice"]]), *json.loads(a["notes"])]:
        click.echo(f"note: {note}")
    click.echo(f"result: {path}")


def print_kernel(columns: dict[str, Any], a: dict[str, Any], path: str | Path, as_json: bool) -> None:
    """Print the table of kernel components, what the landmarks keep, and what the run took."""
    from streampca.sweep.memory import show_bytes

    if as_json:
        keys = (
            "kind", "source", "n_samples", "n_features", "kernel", "gamma", "degree", "coef0", "method", "n_landmarks",
            "kept_trace", "kept_variance", "total_variance", "n_sweeps", "bytes_read", "seconds", "peak_memory_bytes",
            "advice",
        )  # fmt: skip
        facts = {key: a[key] for key in keys if key in a} | {"notes": json.loads(a["notes"])}
        # Neither infinity nor NaN is JSON.
        table = {name: [value if value < float("inf") else None for value in c.tolist()] for name, c in columns.items()}
        click.echo(json.dumps({"result": str(path), **facts, **table}))
        return
    click.echo("  i      variance    share  together  certificate  error, about")
    together = 0.0
    for i, (value, share, bound, error) in enumerate(zip(*columns.values(), strict=True), start=1):
        together += share
        click.echo(f"{i:3d}  {value:12.6g}  {share:7.2%}  {together:8.2%}  {bound:11.1e}  {error:12.1e}")
    click.echo(_kernel_line(a))
    click.echo(
        f"{a['n_samples']} samples x {a['n_features']} features: {a['n_sweeps']} sweeps in all, "
        f"{show_bytes(a['bytes_read'])} read, {a['seconds']:.1f} s, peak memory {show_bytes(a['peak_memory_bytes'])}"
    )
    for note in [*filter(None, [a["advice"]]), *json.loads(a["notes"])]:
        click.echo(f"note: {note}")
    click.echo(f"result: {path}")


def _kernel_line(a: dict[str, Any]) -> str:
    """Return one line on kernel and landmarks."""
    shown = str(a["kernel"])
    if a["kernel"] not in ("linear", "cosine"):
        shown += f", gamma {a['gamma']:.6g}"
    if a["kernel"] in ("poly", "sigmoid"):
        shown += f", coef0 {a['coef0']:g}" + (f", degree {a['degree']:g}" if a["kernel"] == "poly" else "")
    if a["method"] == "fourier":
        return f"{shown}: {a['n_landmarks']} random Fourier features"
    if a["method"] == "exact":
        return f"{shown}: all samples are landmarks, exact"
    return (
        f"{shown}: {a['n_landmarks']} landmarks ({a['method']}) keep {a['kept_trace']:.2%} of the kernel's trace, "
        f"{a['kept_variance']:.2%} of the variance or more"
    )
