"""The database is the truth: every change of state is one guarded statement in `sql/`, the same text on both databases.

A verb is a *script*: a generator that yields statements and is sent their rows. It contains no driver call and no
await, so SQLite runs it as a whole on its writer thread (one hop per verb, several verbs per commit) and PostgreSQL
runs it over asyncpg, each in one short transaction.
"""
