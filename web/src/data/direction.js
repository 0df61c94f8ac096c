// Which way a score points: 1 where a high one speaks for the answer, -1 where a low one does.

const WAYS = new Map([['trust', 1], ['p_ordinary', 1], ['p_outlier', 1], ['p_tampered', 1], ['p_wrong', -1]])

/** Only of these scores it is known, so only these can have a threshold. */
export const DIRECTED = [...WAYS.keys()]

export const wayOf = (name) => WAYS.get(name) ?? 1

/** The scores, turned so that high is good. */
export function turned(values, way) {
  return way === 1 ? values : values.map((value) => -value)
}
