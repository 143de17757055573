// Colours for the text of common languages: words, strings, numbers and comments, line by line.
// In a comment or string of several lines, only the first and the last line are recognised.

const c = 'break case catch class const continue default delete do else enum export extends false finally for function if import in instanceof let new null return static super switch this throw true try typeof var void while with yield async await of';
const languages = [
  { ext: 'js mjs ts tsx jsx json', line: '//', words: c + ' interface type implements public private protected readonly declare namespace abstract as from undefined' },
  { ext: 'go', line: '//', words: 'break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select struct switch type var nil true false iota make new len cap append error string int int64 byte rune bool any' },
  { ext: 'c h cc cpp hpp cs java kt scala swift dart m cu groovy gradle', line: '//', words: c + ' auto bool boolean byte char double extern final float goto implements inline int interface long namespace nullptr override package private protected public short signed sizeof struct template typedef union unsigned using virtual volatile fun val object def let var string include define ifdef endif' },
  { ext: 'rs zig', line: '//', words: 'as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while' },
  { ext: 'py pyx', line: '#', words: 'and as assert async await break class continue def del elif else except False finally for from global if import in is lambda None nonlocal not or pass raise return True try while with yield match case self' },
  { ext: 'sh bash zsh mk makefile dockerfile cmake conf cfg ini toml yaml yml properties ucl tcl nix', line: '#', words: 'if then else elif fi for in do done while case esac function return export local set true false null yes no on off include FROM RUN COPY CMD ENV' },
  { ext: 'rb pl php r jl ex exs', line: '#', words: 'begin class def do else elsif end ensure false for function if in module my nil not or package print puts require rescue return self sub then true undef unless until use when while yield' },
  { ext: 'sql', line: '--', fold: true, words: 'select from where and or not null insert into values update set delete create table index view drop alter add primary key foreign references join left right inner outer on group by order having limit offset union all distinct as case when then else end begin commit rollback in is like between exists default unique check' },
  { ext: 'lua hs elm ada adb ads vhdl', line: '--', words: 'and begin case class data do else elseif end false for function if import in instance is let local module nil not of or package procedure repeat return then true type until where while with' },
  { ext: 'css scss less', words: 'important media import supports keyframes' },
  { ext: 'html htm xml svg xhtml vue xsl xsd', markup: true },
];
const byExt = new Map();
for (const l of languages) {
  const set = new Set((l.words ?? '').split(' '));
  for (const e of l.ext.split(' ')) byExt.set(e, { ...l, set });
}
/** The language of a file by its extension; undefined if there are no colours for it. */
export const language = ext => byExt.get(ext);

const token = /("(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?|`(?:\\.|[^`\\])*`?)|(\/\*.*?(?:\*\/|$)|<!--.*?(?:-->|$))|(\b\d[\d_.]*(?:[eE][+-]?\d+)?[a-zA-Z]*\b|\b0x[\da-fA-F_]+\b)|([A-Za-z_][\w-]*)|(<\/?[\w:.-]+|\/?>)|(.)/gs;
/** Splits a line into parts, each with its class ("" for plain text) and its text. */
export function parts(line, l) {
  const out = [];
  const add = (what, text) => { if (out.length && out.at(-1)[0] === what) out.at(-1)[1] += text; else out.push([what, text]); };
  token.lastIndex = 0;
  for (let m; (m = token.exec(line));) {
    const [text, string, comment, number, word, tag] = m;
    if (l.line && line.startsWith(l.line, m.index) && (l.line !== '#' || m.index === 0 || /\s/.test(line[m.index - 1]))) { add('remark', line.slice(m.index)); break; }
    if (string !== undefined) add('string', text);
    else if (comment !== undefined) add('remark', text);
    else if (number !== undefined) add('number', text);
    else if (word !== undefined) add(l.markup ? '' : l.set.has(l.fold ? text.toLowerCase() : text) ? 'word' : '', text);
    else if (tag !== undefined) add(l.markup ? 'word' : '', text);
    else add('', text);
  }
  return out;
}
