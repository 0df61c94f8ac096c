// What a threshold on a score does: how much is answered, how often that is right, and what is
// caught. Rows with equal scores are answered together.

export const [UNKNOWN, RIGHT, WRONG, FOREIGN] = [0, 1, 2, 3]

/**
 * Count from the highest score down. `order` rises, NaN last; `truth` and `alarm` are per row.
 * Row k of the result is what a threshold at the k-th highest score answers.
 */
export function sweep({ order, values, mask, truth, alarm }) {
  const size = order.length
  const scores = new Float64Array(size)
  const right = new Uint32Array(size + 1)
  const wrong = new Uint32Array(size + 1)
  const foreign = new Uint32Array(size + 1)
  const alarms = new Uint32Array(size + 1)
  const rest = [0, 0, 0, 0] // rows without a score are never answered, but they count
  let found = 0
  let unscored = 0
  for (let place = size - 1; place >= 0; place--) {
    const row = order[place]
    if (mask && !mask[row]) continue
    const kind = truth ? truth[row] : UNKNOWN
    if (Number.isNaN(values[row])) {
      unscored++
      if (kind) rest[kind]++
      if (alarm[row]) rest[0]++
      continue
    }
    scores[found] = values[row]
    right[found + 1] = right[found] + (kind === RIGHT ? 1 : 0)
    wrong[found + 1] = wrong[found] + (kind === WRONG ? 1 : 0)
    foreign[found + 1] = foreign[found] + (kind === FOREIGN ? 1 : 0)
    alarms[found + 1] = alarms[found] + alarm[row]
    found++
  }
  return {
    scored: found,
    total: found + unscored,
    scores: scores.subarray(0, found),
    right, wrong, foreign, alarms,
    totals: {
      wrong: wrong[found] + rest[WRONG],
      foreign: foreign[found] + rest[FOREIGN],
      alarms: alarms[found] + rest[0],
      known: right[found] + wrong[found] + rest[RIGHT] + rest[WRONG],
    },
  }
}

/** How many rows have a score of at least `threshold`. */
export function answeredAt(curve, threshold) {
  let [low, high] = [0, curve.scored]
  while (low < high) {
    const middle = (low + high) >> 1
    if (curve.scores[middle] >= threshold) low = middle + 1
    else high = middle
  }
  return low
}

/** How many rows are answered if the threshold moves by about `step` rows: at least one score on. */
export function stepped(curve, answered, step) {
  const places = Math.min(curve.scored, Math.max(0, answered + step))
  const count = places ? answeredAt(curve, curve.scores[places - 1]) : 0
  if (step > 0 || count < answered || !answered) return count
  let above = places // the step ended among rows of one score: leave all of them out
  while (above && curve.scores[above - 1] === curve.scores[answered - 1]) above--
  return above
}

/** What happens if the first `count` rows are answered. */
export function measure(curve, count) {
  const found = { coverage: curve.total ? count / curve.total : NaN }
  for (const [name, [some, all]] of Object.entries(tally(curve, count))) found[name] = all ? some / all : NaN
  return found
}

/** The same as counts: how many, of how many. */
export function tally({ right, wrong, foreign, alarms, totals }, count) {
  return {
    accuracy: [right[count], right[count] + wrong[count]],
    errors: [totals.wrong - wrong[count], totals.wrong],
    foreign: [totals.foreign - foreign[count], totals.foreign],
    alarms: [totals.alarms - alarms[count], totals.alarms],
  }
}

/** Wilson's 95 % interval of a share. */
export function interval(some, all) {
  const [share, square] = [some / all, 1.96 ** 2 / all]
  const wide = 1.96 * Math.sqrt((share * (1 - share)) / all + square / (4 * all))
  return [-1, 1].map((way) => Math.min(1, Math.max(0, (share + square / 2 + way * wide) / (1 + square))))
}

/** At most `points` places along the curve, where the score changes. */
export function points(curve, points = 300) {
  const found = []
  const step = Math.max(1, curve.scored / points)
  for (let next = step; next < curve.scored + step; next += step) {
    let count = Math.min(curve.scored, Math.round(next))
    while (count < curve.scored && curve.scores[count] === curve.scores[count - 1]) count++
    if (count && count !== found.at(-1)) found.push(count)
    next = Math.max(next, count)
  }
  return found
}
