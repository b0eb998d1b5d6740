// Rounds as the server sends them: the names of the columns once, and a row of values for each round.

/** The rounds as objects: `round`, `clock_s`, `accuracy` and whatever else the columns name. */
export const rounds = ({ columns, rows }) =>
  rows.map((row) => Object.fromEntries(columns.map((column, i) => [column, row[i]])));
