"""What `vestige study` prints of audits, tunings and states, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from vestige.study.audit import AuditReport
    from vestige.study.status import StudyStatus
    from vestige.study.tune import Tuning

__all__ = ["print_audit", "print_status", "print_tuning", "settings_text"]


def print_audit(report: AuditReport) -> None:
    for check in report.checks:
        typer.echo(f"{check.status:<16} {check.name}: {check.detail}")
        shown = len(check.findings) if check.name == "limits" else 5
        for finding in check.findings[:shown]:
            typer.echo(f"{'':<17}- {finding}")
        if len(check.findings) > shown:
            typer.echo(f"{'':<17}- and {len(check.findings) - shown} more (see --json)")


def print_tuning(tuning: Tuning) -> None:
    rows = ", ".join(f"{view} {count}" for view, count in tuning.rows.items())
    typer.echo(
        f"Bundle {tuning.bundle}, seed {tuning.seed}; development rows: {rows}. Tuning used an oracle."
    )
    for item in tuning.methods:
        tried = f"{item.candidates} of at most {item.budget} candidates, {item.feasible_candidates} feasible"
        if item.settings is None or item.chosen is None:
            typer.echo(f"{item.title}: {item.note} ({tried})")
            continue
        edge = f"; at the edge of the grid: {', '.join(item.edges)}" if item.edges else ""
        edge += f"; not bracketed: {', '.join(item.unbracketed)}" if item.unbracketed else ""
        edge += f"; {item.note}" if item.note else ""
        varied = {name: item.settings[name] for name in [*item.grid, "epochs"] if name in item.settings}
        typer.echo(
            f"{item.title}: {settings_text(varied)}; OD_F {item.chosen.od_f:.4f}, "
            f"OD_G {item.chosen.od_g:.4f}, accuracy {item.chosen.delta_accuracy:+.4f} ({tried}{edge})"
        )
        if item.fitted is not None:
            typer.echo(
                f"{item.title} by likelihood instead: {settings_text(item.fitted.settings)}; "
                f"OD_F {item.fitted.od_f:.4f}, OD_G {item.fitted.od_g:.4f}, "
                f"{'feasible' if item.fitted.feasible else 'infeasible'}"
            )
    if not tuning.equal_budgets:
        typer.echo("Budgets differ between methods; they are recorded.")


def print_status(found: StudyStatus) -> None:
    from vestige.cli.console import duration

    state = f"{'a' if found.running else 'no'} run is at work; {duration(found.seconds)} of work kept"
    typer.echo(f"{found.name} ({found.stage}): {state}")
    for what, time in (("tuned", found.tuned), ("frozen", found.frozen)):
        if time:
            typer.echo(f"{what} {time}")
    for item in found.work:
        if item.kind == "predictions" and item.state == "done":
            continue
        parts = [f"{item.state:<12} {item.kind:<10} {item.label}"]
        if item.share is not None:
            parts.append(f"{item.share:.0%}")
        if item.seconds is not None:
            parts.append(duration(item.seconds))
        parts += [part for part in (item.finished, item.note) if part]
        typer.echo(", ".join(parts))


def settings_text(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())
