"""The moving parts: gate, executor, settler, poller, sweeper, heart; the worker repeats them, the tick bounds them."""
