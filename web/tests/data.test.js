import assert from 'node:assert/strict'
import test from 'node:test'
import { words, numbers, sortKeys, extent } from '../src/data/columns.js'
import { csvParts } from '../src/data/csv.js'
import { answeredAt, interval, measure, points, stepped, sweep, tally, RIGHT, WRONG } from '../src/data/curves.js'
import { descending, orderOf } from '../src/data/order.js'

// a small generator, so that a failure can be repeated
function random(seed) {
  let state = seed
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return state / 2 ** 32
  }
}

test('the radix sort is the sort of the language, for every kind of number', () => {
  const draw = random(1)
  for (let trial = 0; trial < 60; trial++) {
    const size = Math.floor(draw() * 300)
    const special = [0, -0, Infinity, -Infinity, NaN, 1e-310, -1e308, 1]
    const values = Float64Array.from({ length: size }, () =>
      draw() < 0.3 ? special[Math.floor(draw() * 8)] : (draw() - 0.5) * 10 ** Math.floor(draw() * 40 - 20))
    const rows = [...values.keys()]
    const plain = rows.sort((a, b) => {
      if (Number.isNaN(values[a]) || Number.isNaN(values[b]))
        return Number.isNaN(values[a]) - Number.isNaN(values[b])
      return values[a] < values[b] ? -1 : values[a] > values[b] ? 1 : 0
    })
    const found = orderOf(values)
    assert.deepEqual([...found].map((k) => values[k] + 0), plain.map((k) => values[k] + 0))
    assert.equal(new Set(found).size, size)
    const down = descending(found, values)
    const known = [...down].map((k) => values[k]).filter((v) => !Number.isNaN(v))
    assert.ok(known.every((v, k) => k === 0 || known[k - 1] >= v))
    assert.ok([...down].slice(known.length).every((k) => Number.isNaN(values[k])))
  }
})

test('a sweep counts what a plain loop over thresholds counts', () => {
  const draw = random(2)
  for (let trial = 0; trial < 40; trial++) {
    const size = 1 + Math.floor(draw() * 60)
    const values = Float64Array.from({ length: size }, () =>
      draw() < 0.1 ? NaN : Math.floor(draw() * 8))
    const truth = Uint8Array.from({ length: size }, () => Math.floor(draw() * 4))
    const alarm = Uint8Array.from({ length: size }, () => (draw() < 0.3 ? 1 : 0))
    const mask = Uint8Array.from({ length: size }, () => (draw() < 0.8 ? 1 : 0))
    const curve = sweep({ order: orderOf(values), values, mask, truth, alarm })
    const rows = [...mask.keys()].filter((k) => mask[k])
    for (const threshold of [-1, 0, 3, 3.5, 7, 9]) {
      const answered = rows.filter((k) => values[k] >= threshold)
      const share = (some, all) => (all.length ? some.length / all.length : NaN)
      const count = answeredAt(curve, threshold)
      assert.equal(count, answered.length)
      const found = measure(curve, count)
      const labelled = answered.filter((k) => truth[k] === RIGHT || truth[k] === WRONG)
      const wrong = rows.filter((k) => truth[k] === WRONG)
      const alarms = rows.filter((k) => alarm[k])
      const below = (some) => some.filter((k) => !(values[k] >= threshold))
      close(found.coverage, share(answered, rows))
      close(found.accuracy, share(labelled.filter((k) => truth[k] === RIGHT), labelled))
      close(found.errors, share(below(wrong), wrong))
      close(found.alarms, share(below(alarms), alarms))
    }
    for (const count of points(curve, 5))
      assert.ok(count === curve.scored || curve.scores[count] !== curve.scores[count - 1])
  }
})

function close(left, right) {
  assert.ok(Object.is(left, right) || Math.abs(left - right) < 1e-12, `${left} is not ${right}`)
}

test('a step of the threshold goes on to the next score, however many rows share one', () => {
  const values = Float64Array.of(3, 2, 2, 2, 2, 1, 1)
  const curve = sweep({
    order: orderOf(values), values, mask: null, truth: Uint8Array.of(1, 1, 1, 1, 2, 2, 0), alarm: new Uint8Array(7),
  })
  const way = (start, step) => {
    const found = [start]
    while (found.length < 9 && found.at(-1) !== found.at(-2)) found.push(stepped(curve, found.at(-1), step))
    return found
  }
  assert.deepEqual(way(7, -1), [7, 5, 1, 0, 0])
  assert.deepEqual(way(0, 1), [0, 1, 5, 7, 7])
  assert.deepEqual(way(7, -6), [7, 1, 0, 0])
  assert.equal(answeredAt(curve, Infinity), 0)
  assert.deepEqual(tally(curve, 5), { accuracy: [4, 5], errors: [1, 2], foreign: [0, 0], alarms: [0, 0] })
  assert.deepEqual(tally(curve, 0).accuracy, [0, 0])
})

test('the interval of a share is that of Wilson', () => {
  // scipy.stats.binomtest(8, 10).proportion_ci(method='wilson')
  for (const [some, all, low, high] of [[8, 10, 0.49016, 0.94332], [1, 1, 0.20655, 1], [0, 4, 0, 0.48989]]) {
    const found = interval(some, all)
    assert.ok(Math.abs(found[0] - low) < 1e-4 && Math.abs(found[1] - high) < 1e-4, String(found))
  }
})

test('words sort as people expect, missing ones last', () => {
  const column = words(['row 10', 'row 9', null, 'a'])
  const order = [...orderOf(sortKeys(column))]
  assert.deepEqual(order, [3, 1, 0, 2])
  assert.deepEqual(extent(Float64Array.of(NaN, 3, -Infinity, 1)), [1, 3])
  assert.deepEqual(extent(Float64Array.of(NaN)), [0, 1])
})

test('a CSV file survives commas, quotes and new lines', () => {
  const values = ['plain', 'a,b', 'say "no"', 'two\nlines', null]
  const text = csvParts(['x', 'row'], Uint32Array.of(0, 1, 2, 3, 4), (name, row) =>
    name === 'row' ? row : values[row]).join('')
  assert.equal(text, 'x,row\r\nplain,0\r\n"a,b",1\r\n"say ""no""",2\r\n"two\nlines",3\r\n,4\r\n')
})

test('a word in a CSV file is never calculated; a number stays one', () => {
  const values = ['=1+1', '+1', '-cat', '@home', '\tx', 'a=b', -1.5]
  const text = csvParts(['x'], Uint32Array.from(values.keys()), (_, row) => values[row]).join('')
  assert.equal(text, "x\r\n'=1+1\r\n'+1\r\n'-cat\r\n'@home\r\n'\tx\r\na=b\r\n-1.5\r\n")
})
