package oakcheck;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** JSON of maps, lists, strings, longs, doubles, booleans and null. */
final class Json {
    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /** One line, without the line's end. */
    static String line(Object o) {
        StringBuilder out = new StringBuilder();
        write(o, out);
        return out.toString();
    }

    private static void write(Object o, StringBuilder out) {
        if (o instanceof Map) {
            String comma = "";
            out.append('{');
            for (Map.Entry<?, ?> e : ((Map<?, ?>) o).entrySet()) {
                out.append(comma);
                string(e.getKey().toString(), out);
                out.append(':');
                write(e.getValue(), out);
                comma = ",";
            }
            out.append('}');
        } else if (o instanceof Iterable) {
            String comma = "";
            out.append('[');
            for (Object e : (Iterable<?>) o) {
                out.append(comma);
                write(e, out);
                comma = ",";
            }
            out.append(']');
        } else if (o == null || o instanceof Number || o instanceof Boolean) {
            out.append(o);
        } else {
            string(o.toString(), out);
        }
    }

    private static void string(String s, StringBuilder out) {
        out.append('"');
        for (int i = 0; i < s.length(); i++) {
            char c = s.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 0x20 || c == 0x7f || Character.isSurrogate(c) && !paired(s, i)) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }

    private static boolean paired(String s, int i) {
        if (Character.isHighSurrogate(s.charAt(i))) {
            return i + 1 < s.length() && Character.isLowSurrogate(s.charAt(i + 1));
        }
        return i > 0 && Character.isHighSurrogate(s.charAt(i - 1));
    }

    static Object parse(String text) {
        Json j = new Json(text);
        Object o = j.value();
        j.blanks();
        if (j.at != text.length()) {
            throw new IllegalArgumentException("json: at " + j.at + ": expected its end");
        }
        return o;
    }

    private void blanks() {
        while (at < text.length() && text.charAt(at) <= ' ') {
            at++;
        }
    }

    private char next() {
        blanks();
        return text.charAt(at);
    }

    private boolean take(char c) {
        if (next() != c) {
            return false;
        }
        at++;
        return true;
    }

    private void want(char c) {
        if (!take(c)) {
            throw new IllegalArgumentException("json: at " + at + ": expected " + c + ", found " + text.charAt(at));
        }
    }

    private Object value() {
        if (take('{')) {
            Map<String, Object> m = new LinkedHashMap<>();
            while (next() != '}') {
                if (!m.isEmpty()) {
                    want(',');
                }
                String key = string();
                want(':');
                m.put(key, value());
            }
            at++;
            return m;
        }
        if (take('[')) {
            List<Object> l = new ArrayList<>();
            while (next() != ']') {
                if (!l.isEmpty()) {
                    want(',');
                }
                l.add(value());
            }
            at++;
            return l;
        }
        if (next() == '"') {
            return string();
        }
        int from = at;
        while (at < text.length() && ",]} \n\r\t".indexOf(text.charAt(at)) < 0) {
            at++;
        }
        String word = text.substring(from, at);
        switch (word) {
            case "true":
                return true;
            case "false":
                return false;
            case "null":
                return null;
            default:
                if (word.matches("-?[0-9]+")) {
                    return Long.valueOf(word);
                }
                return Double.valueOf(word);
        }
    }

    private String string() {
        want('"');
        StringBuilder out = new StringBuilder();
        while (true) {
            char c = text.charAt(at++);
            if (c == '"') {
                return out.toString();
            }
            if (c != '\\') {
                out.append(c);
                continue;
            }
            c = text.charAt(at++);
            switch (c) {
                case 'n':
                    out.append('\n');
                    break;
                case 'r':
                    out.append('\r');
                    break;
                case 't':
                    out.append('\t');
                    break;
                case 'b':
                    out.append('\b');
                    break;
                case 'f':
                    out.append('\f');
                    break;
                case 'u':
                    out.append((char) Integer.parseInt(text.substring(at, at + 4), 16));
                    at += 4;
                    break;
                default:
                    out.append(c);
            }
        }
    }
}
