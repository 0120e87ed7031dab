"""`backstay doctor`: one file for each area, a function for each check, and what every check says is a finding."""
