// Builds the explorer into the package: one script, one style, and the licences of what is inside.
// The output depends on nothing but the sources and the lock file: `npm ci && npm run build`.
import { createHash } from 'node:crypto'
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'

const here = path.dirname(fileURLToPath(import.meta.url))
const out = process.argv[2] ?? path.join(here, '..', 'src', 'credibly', 'explore', 'built')
const LIBRARIES = ['@preact/signals', '@preact/signals-core', 'hyparquet', 'preact', 'uplot']

/** The SHA-256 over names and contents of the sources, as tests/explore/test_built.py works it out. */
async function digestOfSources() {
  const found = await readdir(path.join(here, 'src'), { recursive: true, withFileTypes: true })
  const names = found.filter((entry) => entry.isFile())
    .map((entry) => path.relative(here, path.join(entry.parentPath ?? entry.path, entry.name)).replaceAll(path.sep, '/'))
  const hash = createHash('sha256')
  for (const name of [...names, 'build.mjs', 'package-lock.json'].sort()) {
    const content = await readFile(path.join(here, name))
    hash.update(`${name}\0${content.length}\0`).update(content)
  }
  return hash.digest('hex')
}

async function bundle(entry, options = {}) {
  const made = await build({
    absWorkingDir: here, entryPoints: [entry], bundle: true, minify: true, write: false, charset: 'utf8',
    legalComments: 'none', target: ['chrome111', 'firefox113', 'safari16.4'], logLevel: 'warning', ...options,
  })
  return made.outputFiles[0].text
}

async function licences() {
  let text = 'The explorer contains these libraries.\n'
  for (const name of LIBRARIES) {
    const folder = path.join(here, 'node_modules', name)
    const { version, license } = JSON.parse(await readFile(path.join(folder, 'package.json'), 'utf8'))
    text += `\n\n${'='.repeat(78)}\n${name} ${version} (${license})\n${'='.repeat(78)}\n\n`
    text += (await readFile(path.join(folder, 'LICENSE'), 'utf8')).replaceAll('\r\n', '\n').trim() + '\n'
  }
  return text
}

const mark = `/* credibly explorer; sources sha256:${await digestOfSources()} */\n`
const script = await bundle('src/main.jsx', { format: 'iife', jsx: 'automatic', jsxImportSource: 'preact' })
if (/<\/script|<!--/iu.test(script)) throw new Error('the script would end the element that it stands in')
await mkdir(out, { recursive: true })
const files = {
  'explorer.js': mark + script,
  'explorer.css': await bundle('src/style/explorer.css'),
  'common.css': await bundle('src/style/common.css'),
  'verdicts.json': await readFile(path.join(here, 'src', 'verdicts.json'), 'utf8'),
  'LICENSES.txt': await licences(),
}
for (const [name, text] of Object.entries(files)) {
  await writeFile(path.join(out, name), text)
  console.log(`${name.padEnd(13)} ${(Buffer.byteLength(text) / 1000).toFixed(1)} kB`)
}
