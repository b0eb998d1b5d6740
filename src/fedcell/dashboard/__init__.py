"""The cell in a browser: the server behind `fedcell serve`, and the page in static/."""
