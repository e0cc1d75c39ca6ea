"""Applies the recorded migrations to a PostgreSQL, prepares the recorded statements, and says what it refuses; and which
statements of the sources no test has run, so that none stands there untried.

Usage: check-sql.py RECORD COMMAND ...   (COMMAND runs psql)
"""

import pathlib
import re
import subprocess
import sys

record, command = sys.argv[1], sys.argv[2:]
# Of statements: the file that each is of; and of each file, what was run.
migrations, statements, run = [], {}, {}
for entry in pathlib.Path(record).read_text().split("\x1e"):
    place, separator, text = entry.partition("\x1f")
    if not separator:
        continue
    # A trigger by which a test does damage, and the end of it.
    if place in ("migration/damage", "migration/mended"):
        continue
    if place.startswith("migration/"):
        if (place, text) not in migrations:
            migrations.append((place, text))
    # What tests ask by themselves is for SQLite alone.
    elif not place.split("/")[0].endswith("Tests"):
        statements.setdefault(text, place)
        run.setdefault(place, set()).add(" ".join(text.split()))



def literal(source, start):
    """The text of the string literal that begins there, with \0 for what is put into it; None: there is none."""
    while source[start].isspace():
        start += 1
    quote = '"""' if source.startswith('"""', start) else '"'
    if not source.startswith(quote, start):
        return None
    text, at = "", start + len(quote)
    while not source.startswith(quote, at):
        if source.startswith("\\(", at):
            depth, at = 1, at + 2
            while depth:
                depth += {"(": 1, ")": -1}.get(source[at], 0)
                at += 1
            text += "\0"
        elif source[at] == "\\":
            text, at = text + (source[at + 1] if source[at + 1] in '"\\' else " "), at + 2
        else:
            text, at = text + source[at], at + 1
    return text


def written():
    """Each statement of the sources: where it stands, the file as the record names it, and what its text is like."""
    for path in sorted([*pathlib.Path("Shared").rglob("*.swift"), *pathlib.Path("Services").rglob("*.swift")]):
        folder = path.parts[1]
        module = folder if path.parts[0] == "Shared" else "Nephos" + folder
        source = path.read_text()
        for found in re.finditer(r"(?<![A-Za-z])SQL\(", source):
            text = literal(source, found.end())
            # One whose text is made elsewhere is recorded there, or is a type's.
            if text is not None:
                parts = [re.escape(" ".join(part.split())) for part in text.split("\0")]
                line = source.count("\n", 0, found.start()) + 1
                yield f"{path}:{line}", f"{module}/{path.name}", re.compile(r"\s*(.*)\s*".join(parts), re.DOTALL)


all_written = list(written())
idle = [
    (place, form) for place, file, form in all_written if not any(form.fullmatch(text) for text in run.get(file, ()))]
for place, form in idle:
    print(f"{place}: no test runs it")

# How SQLite begins and ends a transaction is the engine's own.
own = {"BEGIN IMMEDIATE", "BEGIN DEFERRED", "COMMIT", "ROLLBACK"}
script, places = ["CREATE DOMAIN blob AS bytea;"], {}


def add(place, text, sql):
    number = len(places)
    places[number] = (place, text)
    script.append(f"\\echo at {number}\n{sql}\n;")


for place, text in migrations:
    # How a table lies on disk is SQLite's alone.
    add(place, text, text.replace(" WITHOUT ROWID", ""))
for text, place in sorted(statements.items(), key=lambda item: item[1]):
    if text not in own:
        numbered = re.sub(r"[?]([0-9]+)", r"$\1", text)
        add(place, text, f"PREPARE s{len(places)} AS {numbered}")
# One stream, so that an error stands after the statement that it is of.
result = subprocess.run(
    command + ["-q", "-v", "ON_ERROR_STOP=0", "-v", "VERBOSITY=terse"], input="\n".join(script), text=True,
    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
number, refused = None, 0
for line in result.stdout.splitlines():
    if line.startswith("at "):
        number = int(line[3:])
    elif "ERROR" in line:
        refused += 1
        place, text = places.get(number, ("", ""))
        print(f"{place}: {line}\n    {' '.join(text.split())}")
print(f"{len(places) - refused} of {len(places)} statements and migrations are PostgreSQL's too.")
print(f"{len(all_written) - len(idle)} of {len(all_written)} statements of the sources were run.")
sys.exit(1 if refused or idle or result.returncode or len(places) < 100 or len(all_written) < 300 else 0)
