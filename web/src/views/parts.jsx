// Small parts that several views use.
import { useEffect, useRef, useState } from 'preact/hooks'
import { SHAPES } from '../verdicts.js'

export function Badge({ verdict, children }) {
  return (
    <span class={`badge ${verdict}`}>
      <svg viewBox="0 0 12 12" aria-hidden="true"><path d={SHAPES[verdict] ?? SHAPES.unusable} /></svg>
      {children ?? verdict ?? 'no verdict'}
    </span>
  )
}

/** The size of an element, as it changes. */
export function useSize() {
  const place = useRef(null)
  const [size, setSize] = useState({ width: 0, height: 0 })
  useEffect(() => {
    const look = () => {
      const { clientWidth: width, clientHeight: height } = place.current
      setSize((old) => (old.width === width && old.height === height ? old : { width, height }))
    }
    const watch = new ResizeObserver(look)
    watch.observe(place.current)
    look()
    return () => watch.disconnect()
  }, [])
  return [place, size]
}

/** A colour of the style sheet, as it is now. */
export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()
}

/** Draws again when the system turns dark or light. */
export function useScheme() {
  const [dark, setDark] = useState(matchMedia('(prefers-color-scheme: dark)').matches)
  useEffect(() => {
    const query = matchMedia('(prefers-color-scheme: dark)')
    const look = () => setDark(query.matches)
    query.addEventListener('change', look)
    return () => query.removeEventListener('change', look)
  }, [])
  return dark
}

export function Choice({ label, value, options, onChange }) {
  return (
    <label class="choice">
      <span>{label}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map((name) => <option key={name} value={name}>{name}</option>)}
      </select>
    </label>
  )
}
