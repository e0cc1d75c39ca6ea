"""Applies the recorded migrations to a PostgreSQL, prepares the recorded statements, and says what it refuses.

Usage: check-sql.py RECORD COMMAND ...   (COMMAND runs psql)
"""

import pathlib
import re
import subprocess
import sys

record, command = sys.argv[1], sys.argv[2:]
migrations, statements = [], {}
for entry in pathlib.Path(record).read_text().split("\x1e"):
    place, separator, text = entry.partition("\x1f")
    if not separator:
        continue
    # A trigger by which a test does damage.
    if place == "migration/damage":
        continue
    if place.startswith("migration/"):
        if (place, text) not in migrations:
            migrations.append((place, text))
    # What tests ask by themselves is for SQLite alone.
    elif not place.split("/")[0].endswith("Tests"):
        statements.setdefault(text, place)

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
sys.exit(1 if refused or result.returncode or len(places) < 100 else 0)
