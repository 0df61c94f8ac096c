// Any two scores against each other. Drag to select, click to look at a row.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { count, number } from '../format.js'
import * as state from '../state.js'
import { VERDICTS } from '../verdicts.js'
import { Choice, color, useScheme, useSize } from './parts.jsx'
import { nearestRow, paint, project, scaleOf, ticks, valueAt } from './points.js'

const MARGIN = { left: 52, right: 14, top: 10, bottom: 30 }
const EDGE = 0.02 // room around the points
const LEAST = 4 // pixels; what is narrower is no selection

export function Scatter() {
  const [place, size] = useSize()
  const canvas = useRef(null)
  const [drag, setDrag] = useState(null)
  const scheme = useScheme()
  const theme = state.theme.value
  const names = state.axes.value
  const columns = names.map(state.values)
  const ready = columns.every(Boolean)
  const ratio = Math.min(2, globalThis.devicePixelRatio || 1)
  const width = Math.max(50, size.width - MARGIN.left - MARGIN.right)
  const height = Math.max(50, size.height - MARGIN.top - MARGIN.bottom)

  const spans = useMemo(
    () => state.bounds.value.map((span, k) => {
      const log = (state.logs.value.get(names[k]) ?? names[k].startsWith('p_')) && span[0] > 0
      return { log, span: padded(span, log), can: span[0] > 0 }
    }),
    [state.bounds.value, state.logs.value, names.join()],
  )
  const points = useMemo(() => {
    if (!ready || !size.width) return null
    const [x, y] = spans
    return {
      px: project(columns[0], x.span, x.log, Math.round(width * ratio), false),
      py: project(columns[1], y.span, y.log, Math.round(height * ratio), true),
    }
  }, [columns[0], columns[1], spans, width, height])
  const { mask } = state.shown.value

  useEffect(() => {
    if (!points) return undefined
    const frame = requestAnimationFrame(() => {
      const colors = Object.fromEntries(VERDICTS.map((name) => [name, color(name)]))
      Object.assign(colors, { faint: color('line'), page: color('raised') })
      const started = performance.now()
      paint(canvas.current, { ...points, codes: state.codes.value, mask, colors, ratio })
      performance.measure('scatter', { start: started, end: performance.now() })
    })
    return () => cancelAnimationFrame(frame)
  }, [points, mask, scheme, theme])

  const at = (event) => {
    const box = canvas.current.getBoundingClientRect()
    return [clamp((event.clientX - box.left) / box.width), clamp((event.clientY - box.top) / box.height)]
  }
  const toBrush = ([x0, y0], [x1, y1]) => {
    const [x, y] = spans
    const pair = ({ span, log }, a, b) => [valueAt(span, log, Math.min(a, b)), valueAt(span, log, Math.max(a, b))]
    return { x: pair(x, x0, x1), y: pair(y, 1 - y0, 1 - y1) }
  }
  const down = (event) => {
    if (event.button) return
    event.currentTarget.setPointerCapture(event.pointerId)
    setDrag({ from: at(event), before: state.brush.value, moved: false })
  }
  const moved = (event) => {
    if (!drag) return
    const here = at(event)
    const sides = [(here[0] - drag.from[0]) * width, (here[1] - drag.from[1]) * height].map(Math.abs)
    if (!drag.moved && Math.max(...sides) < LEAST) return
    if (!drag.moved) setDrag({ ...drag, moved: true })
    state.brush.value = Math.min(...sides) < LEAST ? drag.before : toBrush(drag.from, here)
  }
  const cancel = () => { // a finger scrolls the page
    if (drag) state.brush.value = drag.before
    setDrag(null)
  }
  const up = (event) => {
    if (!drag) return
    setDrag(null)
    if (drag.moved || !points) return
    const [x, y] = at(event)
    const row = nearestRow({ ...points, mask }, x * width * ratio, y * height * ratio, 14 * ratio)
    if (row !== null) state.selected.value = row
    else state.brush.value = null
  }

  const where = (row) => points && [
    MARGIN.left + points.px[row] / ratio, MARGIN.top + points.py[row] / ratio,
  ]
  const chosen = state.selected.value
  const spot = points && chosen !== null && points.px[chosen] >= 0 && points.py[chosen] >= 0 ? where(chosen) : null
  return (
    <section class="card scatter" aria-label="Scatter of two scores">
      <header>
        <h2>Scores</h2>
        {['across', 'up'].map((way, k) => (
          <span key={way} class="axis-choice">
            <Choice label={way} value={names[k]} options={state.scores.value}
              onChange={(name) => {
                state.brush.value = null
                state.axes.value = names.map((old, other) => (other === k ? name : old))
              }} />
            <label class="tick">
              <input type="checkbox" aria-label={`${way}: log scale`} checked={spans[k].log} disabled={!spans[k].can}
                onChange={(event) => (state.logs.value = new Map(state.logs.value).set(names[k], event.currentTarget.checked))} />
              log
            </label>
          </span>
        ))}
      </header>
      <div class="plot" ref={place}>
        <svg class="frame" width={size.width} height={size.height} aria-hidden="true">
          {spans[0].span && ticks(spans[0].span, spans[0].log).map((value) => {
            const x = MARGIN.left + scaleOf(spans[0].span, spans[0].log)(value) * width
            return (
              <g key={value}>
                <line class="grid" x1={x} x2={x} y1={MARGIN.top} y2={MARGIN.top + height} />
                <text x={x} y={MARGIN.top + height + 18} text-anchor="middle">{number(value)}</text>
              </g>
            )
          })}
          {ticks(spans[1].span, spans[1].log).map((value) => {
            const y = MARGIN.top + (1 - scaleOf(spans[1].span, spans[1].log)(value)) * height
            return (
              <g key={value}>
                <line class="grid" x1={MARGIN.left} x2={MARGIN.left + width} y1={y} y2={y} />
                <text x={MARGIN.left - 8} y={y + 4} text-anchor="end">{number(value)}</text>
              </g>
            )
          })}
        </svg>
        <canvas ref={canvas} width={Math.round(width * ratio)} height={Math.round(height * ratio)} role="img"
          style={{ left: `${MARGIN.left}px`, top: `${MARGIN.top}px`, width: `${width}px`, height: `${height}px` }}
          aria-label={`${count(state.shown.value.count)} rows: ${names[0]} across, ${names[1]} up. To select without a pointer, type a filter such as ${names[0]}<0.5`}
          onPointerDown={down} onPointerMove={moved} onPointerUp={up} onPointerCancel={cancel} />
        <svg class="over" width={size.width} height={size.height} aria-hidden="true">
          {state.brush.value && <Box spans={spans} width={width} height={height} />}
          {state.limit.value !== null && names.map((name, k) => name === state.score.value && (
            <Line key={k} k={k} share={scaleOf(spans[k].span, spans[k].log)(state.limit.value)} width={width} height={height} />
          ))}
          {spot && <circle class="spot" cx={spot[0]} cy={spot[1]} r="9" />}
        </svg>
        {state.brush.value && <button type="button" class="clear" onClick={() => (state.brush.value = null)}>clear selection</button>}
        {!ready && <p class="waiting">reading {names.join(' and ')} …</p>}
      </div>
    </section>
  )
}

function Box({ spans: [x, y], width, height }) {
  const side = ({ span, log }, value) => clamp(scaleOf(span, log)(value))
  const { x: across, y: up } = state.brush.value
  const [left, right] = across.map((value) => side(x, value) * width)
  const [bottom, top] = up.map((value) => (1 - side(y, value)) * height)
  return (
    <rect class="brush" x={MARGIN.left + left} y={MARGIN.top + top} width={right - left} height={bottom - top} />
  )
}

function Line({ k, share, width, height }) {
  if (!(share >= 0 && share <= 1)) return null
  const x = MARGIN.left + share * width
  const y = MARGIN.top + (1 - share) * height
  const ends = k === 0
    ? { x1: x, x2: x, y1: MARGIN.top, y2: MARGIN.top + height }
    : { x1: MARGIN.left, x2: MARGIN.left + width, y1: y, y2: y }
  return <line class="limit" {...ends} />
}

function padded([low, high], log) {
  if (!log) {
    const room = (high - low || 1) * EDGE
    return [low - room, high + room]
  }
  const room = (high / low) ** EDGE
  return low === high ? [low / 2, high * 2] : [low / room, high * room]
}

/** Within the axis; what has no logarithm lies at its start. */
function clamp(share) {
  return share > 0 ? Math.min(1, share) : 0
}
