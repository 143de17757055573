package oakcheck;

import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import java.util.zip.CRC32;

import org.apache.jackrabbit.oak.commons.Buffer;
import org.apache.jackrabbit.oak.segment.SegmentId;
import org.apache.jackrabbit.oak.segment.data.RecordIdData;
import org.apache.jackrabbit.oak.segment.data.SegmentData;
import org.apache.jackrabbit.oak.segment.data.StringData;
import org.apache.jackrabbit.oak.segment.file.tar.GraphLoader;
import org.apache.jackrabbit.oak.segment.file.tar.SegmentTarManager;
import org.apache.jackrabbit.oak.segment.file.tar.binaries.BinaryReferencesIndex;
import org.apache.jackrabbit.oak.segment.file.tar.binaries.BinaryReferencesIndexLoader;
import org.apache.jackrabbit.oak.segment.file.tar.index.IndexEntry;
import org.apache.jackrabbit.oak.segment.spi.monitor.FileStoreMonitorAdapter;
import org.apache.jackrabbit.oak.segment.spi.monitor.IOMonitorAdapter;
import org.apache.jackrabbit.oak.segment.spi.persistence.SegmentArchiveEntry;
import org.apache.jackrabbit.oak.segment.spi.persistence.SegmentArchiveReader;

/** One tar of a store: what the reference's reader makes of it, and whether its parts agree. */
final class Tar {
    private static final int BLOCK = 512;
    private static final int BLOB_ID_RECORD = 8;
    private static final String UNKNOWN = "\"?\"";

    private Tar() {}

    private static SegmentTarManager manager(File tar) {
        return new SegmentTarManager(tar.getAbsoluteFile().getParentFile(), new FileStoreMonitorAdapter(), new IOMonitorAdapter(), false, false);
    }

    /** Its index in the order of positions, graph, binary references and headers of segments. A part that is not valid is null. */
    static Map<String, Object> dump(File tar, boolean segments) {
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("length", tar.length());
        SegmentArchiveReader r = null;
        try {
            r = manager(tar).open(tar.getName());
            if (r == null) {
                out.put("index", null);
                return out;
            }
            out.put("indexVersion", indexVersion(tar));
            List<Object> index = new ArrayList<>();
            for (SegmentArchiveEntry e : r.listSegments()) {
                index.add(Arrays.asList(new UUID(e.getMsb(), e.getLsb()).toString(), ((IndexEntry) e).getPosition(), e.getLength(), e.getGeneration(), e.getFullGeneration(), e.isCompacted()));
            }
            out.put("index", index);
            graph(r, out);
            references(r, out);
            if (segments) {
                Map<String, Object> m = new LinkedHashMap<>();
                for (SegmentArchiveEntry e : r.listSegments()) {
                    UUID id = new UUID(e.getMsb(), e.getLsb());
                    m.put(id.toString(), segment(id, bytes(r.readSegment(e.getMsb(), e.getLsb()))));
                }
                out.put("segments", m);
            }
        } catch (IOException | RuntimeException e) {
            out.put("index", null);
            out.put("error", e.toString());
        } finally {
            close(r);
        }
        return out;
    }

    private static void close(SegmentArchiveReader r) {
        try {
            if (r != null) {
                r.close();
            }
        } catch (IOException ignored) {
            // It was only read.
        }
    }

    private static Object indexVersion(File tar) throws IOException {
        try (RandomAccessFile f = new RandomAccessFile(tar, "r")) {
            f.seek(f.length() - 2 * BLOCK - 4);
            int magic = f.readInt();
            switch (magic) {
                case 0x0A304B0A:
                    return 1;
                case 0x0A314B0A:
                    return 2;
                default:
                    return String.format("%08x", magic);
            }
        }
    }

    private static void graph(SegmentArchiveReader r, Map<String, Object> out) {
        try {
            Map<String, Object> all = new TreeMap<>();
            Buffer graph = r.getGraph();
            if (graph == null) {
                out.put("graph", null);
                return;
            }
            for (Map.Entry<UUID, List<UUID>> e : GraphLoader.parseGraph(graph).entrySet()) {
                Set<String> to = new TreeSet<>();
                for (UUID u : e.getValue()) {
                    to.add(u.toString());
                }
                all.put(e.getKey().toString(), new ArrayList<>(to));
            }
            out.put("graph", all);
        } catch (IOException | RuntimeException e) {
            out.put("graph", null);
            out.put("graphError", e.toString());
        }
    }

    private static void references(SegmentArchiveReader r, Map<String, Object> out) {
        try {
            BinaryReferencesIndex all = BinaryReferencesIndexLoader.parseBinaryReferencesIndex(r.getBinaryReferences());
            Map<String, Map<String, Set<String>>> by = new TreeMap<>();
            all.forEach((gen, full, compacted, segment, ref) -> by
                    .computeIfAbsent(generation(gen, full, compacted), k -> new TreeMap<>())
                    .computeIfAbsent(segment.toString(), k -> new TreeSet<>()).add(ref));
            Map<String, Object> m = new LinkedHashMap<>();
            by.forEach((gen, segments) -> {
                Map<String, Object> of = new LinkedHashMap<>();
                segments.forEach((segment, refs) -> {
                    List<Object> texts = new ArrayList<>();
                    refs.forEach(ref -> texts.add(Store.text(ref)));
                    of.put(segment, texts);
                });
                m.put(gen, of);
            });
            out.put("brf", m);
        } catch (Exception e) {
            out.put("brf", null);
            out.put("brfError", String.valueOf(e.getMessage()));
        }
    }

    private static String generation(int gen, int full, boolean compacted) {
        return gen + "," + full + "," + compacted;
    }

    private static byte[] bytes(Buffer b) {
        byte[] out = new byte[b.remaining()];
        b.duplicate().get(out);
        return out;
    }

    private static Map<String, Object> segment(UUID id, byte[] raw) {
        Map<String, Object> s = new LinkedHashMap<>();
        s.put("sha256", Store.sha256(raw));
        if (!SegmentId.isDataSegmentId(id.getLeastSignificantBits())) {
            return s;
        }
        try {
            SegmentData d = SegmentData.newSegmentData(Buffer.wrap(raw));
            s.put("version", (long) d.getVersion());
            s.put("gen", d.getGeneration());
            s.put("full", d.getFullGeneration());
            s.put("compacted", d.isCompacted());
            List<Object> refs = new ArrayList<>();
            for (int i = 0; i < d.getSegmentReferencesCount(); i++) {
                refs.add(reference(d, i).toString());
            }
            s.put("refs", refs);
            int n = d.getRecordReferencesCount();
            s.put("records", n);
            Integer[] types = new Integer[9];
            Arrays.fill(types, 0);
            StringBuilder table = new StringBuilder();
            for (int i = 0; i < n; i++) {
                int t = d.getRecordReferenceType(i);
                if (t >= 0 && t < types.length) {
                    types[t]++;
                }
                table.append(d.getRecordReferenceNumber(i)).append(':').append(t).append(':').append(d.getRecordReferenceOffset(i)).append('\n');
            }
            s.put("recordsByType", Arrays.asList(types));
            s.put("recordTableSha256", Store.sha256(table.toString().getBytes(StandardCharsets.UTF_8)));
            if (n > 0) {
                s.put("info", d.readString(d.getRecordReferenceOffset(0)).getString());
            }
        } catch (RuntimeException e) {
            s.put("error", e.toString());
        }
        return s;
    }

    private static UUID reference(SegmentData d, int i) {
        return new UUID(d.getSegmentReferenceMsb(i), d.getSegmentReferenceLsb(i));
    }

    /**
     * Compares the index with the headers of the entries and what the reference's
     * recovery finds, and graph and binary references with the segments themselves.
     */
    @SuppressWarnings("unchecked")
    static Map<String, Object> verify(File tar) throws IOException {
        List<String> faults = new ArrayList<>(), notes = new ArrayList<>();
        Map<String, Object> said = dump(tar, false);
        LinkedHashMap<UUID, byte[]> found = new LinkedHashMap<>();
        manager(tar).recoverEntries(tar.getName(), found);
        for (String part : Arrays.asList("index", "graph", "brf")) {
            if (said.get(part) == null) {
                faults.add(part + ": not valid");
            }
        }
        Set<String> indexed = new TreeSet<>(), scanned = new TreeSet<>();
        if (said.get("index") != null) {
            try (RandomAccessFile f = new RandomAccessFile(tar, "r")) {
                for (Object e : (List<Object>) said.get("index")) {
                    indexed.add((String) ((List<Object>) e).get(0));
                    entry(f, (List<Object>) e, said.get("indexVersion").equals(1), faults);
                }
            }
        }
        found.keySet().forEach(u -> scanned.add(u.toString()));
        missing("in the index, not found by the scan", indexed, scanned, faults);
        missing("found by the scan, not in the index", scanned, indexed, faults);

        Map<String, Set<String>> graph = new TreeMap<>(), references = new TreeMap<>();
        found.forEach((id, raw) -> {
            if (SegmentId.isDataSegmentId(id.getLeastSignificantBits())) {
                try {
                    recompute(id, raw, found, graph, references);
                } catch (RuntimeException e) {
                    faults.add("segment " + id + ": " + e);
                }
            }
        });
        if (said.get("graph") != null) {
            compareGraph((Map<String, List<String>>) said.get("graph"), graph, indexed, faults, notes);
        }
        if (said.get("brf") != null) {
            compareReferences((Map<String, Map<String, List<Object>>>) said.get("brf"), references, faults, notes);
        }
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("entries", indexed.size());
        out.put("faults", faults);
        out.put("notes", notes);
        return out;
    }

    private static void missing(String what, Set<String> of, Set<String> in, List<String> faults) {
        for (String s : of) {
            if (!in.contains(s)) {
                faults.add(what + ": " + s);
            }
        }
    }

    /** One entry of the index: id, position, length, generation, full generation, compacted. */
    private static void entry(RandomAccessFile f, List<Object> e, boolean first, List<String> faults) throws IOException {
        String id = (String) e.get(0);
        byte[] header = new byte[BLOCK], data = new byte[(Integer) e.get(2)];
        f.seek((Integer) e.get(1) - BLOCK);
        f.readFully(header);
        f.readFully(data);
        CRC32 crc = new CRC32();
        crc.update(data);
        want("name", id, String.format("%s.%08x", id, crc.getValue()), new String(header, 0, 100, StandardCharsets.UTF_8).replaceAll("\0.*", ""), faults);
        int sum = 0;
        for (int i = 0; i < BLOCK; i++) {
            sum += i >= 148 && i < 156 ? ' ' : header[i] & 0xff;
        }
        want("header checksum", id, String.format("%06o\0 ", sum), new String(header, 148, 8, StandardCharsets.ISO_8859_1), faults);
        want("header size", id, String.format("%011o", data.length), new String(header, 124, 11, StandardCharsets.ISO_8859_1), faults);
        List<Object> generation = Arrays.asList(0, 0, false);
        if (SegmentId.isDataSegmentId(UUID.fromString(id).getLeastSignificantBits())) {
            try {
                SegmentData d = SegmentData.newSegmentData(Buffer.wrap(data));
                generation = Arrays.asList(d.getGeneration(), d.getFullGeneration(), d.isCompacted());
            } catch (RuntimeException x) {
                faults.add("segment " + id + ": " + x);
                return;
            }
        } else if (first) {
            // An index of the first version holds no more than the generation; the
            // reference makes up the rest.
            return;
        }
        want("generation in the index", id, generation.toString(), e.subList(3, 6).toString(), faults);
    }

    private static void want(String what, String id, String expected, String found, List<String> faults) {
        if (!expected.equals(found)) {
            faults.add(what + ": " + id + ": expected " + expected.trim() + ", found " + found.trim());
        }
    }

    private static void recompute(UUID id, byte[] raw, Map<UUID, byte[]> all, Map<String, Set<String>> graph, Map<String, Set<String>> references) {
        SegmentData d = SegmentData.newSegmentData(Buffer.wrap(raw));
        for (int i = 0; i < d.getSegmentReferencesCount(); i++) {
            graph.computeIfAbsent(id.toString(), k -> new TreeSet<>()).add(reference(d, i).toString());
        }
        for (int i = 0; i < d.getRecordReferencesCount(); i++) {
            if (d.getRecordReferenceType(i) == BLOB_ID_RECORD) {
                String blob = blobId(d, d.getRecordReferenceOffset(i), all);
                references.computeIfAbsent(generation(d.getGeneration(), d.getFullGeneration(), d.isCompacted()) + " " + id, k -> new TreeSet<>())
                        .add(blob == null ? UNKNOWN : Json.line(Store.text(blob)));
            }
        }
    }

    /** The id in a record: null if it is in another tar, or so long that it is a list of blocks. */
    private static String blobId(SegmentData d, int offset, Map<UUID, byte[]> all) {
        int head = d.readByte(offset) & 0xff;
        if ((head & 0xf0) == 0xe0) {
            int size = (head & 0x0f) << 8 | d.readByte(offset + 1) & 0xff;
            return d.readBytes(offset + 2, size).decode(StandardCharsets.UTF_8).toString();
        }
        RecordIdData r = d.readRecordId(offset + 1);
        SegmentData in = d;
        if (r.getSegmentReference() != 0) {
            byte[] b = all.get(reference(d, r.getSegmentReference() - 1));
            if (b == null) {
                return null;
            }
            in = SegmentData.newSegmentData(Buffer.wrap(b));
        }
        for (int i = 0; i < in.getRecordReferencesCount(); i++) {
            if (in.getRecordReferenceNumber(i) == r.getRecordNumber()) {
                StringData s = in.readString(in.getRecordReferenceOffset(i));
                return s.isString() ? s.getString() : null;
            }
        }
        throw new IllegalStateException("record " + r.getRecordNumber() + ": not there");
    }

    private static void compareGraph(Map<String, List<String>> said, Map<String, Set<String>> is, Set<String> indexed, List<String> faults, List<String> notes) {
        said.forEach((from, to) -> {
            if (to.isEmpty()) {
                faults.add("graph: " + from + ": of no edges");
            }
            for (String t : to) {
                if (!is.getOrDefault(from, Collections.emptySet()).contains(t)) {
                    faults.add("graph: " + from + ": does not refer to " + t);
                }
            }
        });
        is.forEach((from, to) -> {
            for (String t : to) {
                if (!said.getOrDefault(from, Collections.emptyList()).contains(t)) {
                    // The reference's cleanup drops edges that lead out of a tar.
                    (indexed.contains(t) ? faults : notes).add("graph: " + from + ": lacks the edge to " + t);
                }
            }
        });
    }

    private static void compareReferences(Map<String, Map<String, List<Object>>> said, Map<String, Set<String>> is, List<String> faults, List<String> notes) {
        Map<String, Set<String>> by = new TreeMap<>();
        said.forEach((generation, segments) -> segments.forEach((segment, refs) -> {
            for (Object r : refs) {
                by.computeIfAbsent(generation + " " + segment, k -> new TreeSet<>()).add(Json.line(r));
            }
        }));
        by.forEach((at, refs) -> {
            Set<String> there = is.getOrDefault(at, Collections.emptySet());
            for (String r : refs) {
                if (!there.contains(r)) {
                    (there.contains(UNKNOWN) ? notes : faults).add("brf: " + at + ": does not refer to " + r);
                }
            }
        });
        is.forEach((at, refs) -> {
            for (String r : refs) {
                if (!r.equals(UNKNOWN) && !by.getOrDefault(at, Collections.emptySet()).contains(r)) {
                    faults.add("brf: " + at + ": lacks " + r);
                }
            }
        });
    }

    /** Cuts off all that follows the segments, as a process that is killed leaves the tar it writes. */
    static long unindex(File tar) throws IOException {
        long end = 0;
        SegmentArchiveReader r = manager(tar).open(tar.getName());
        if (r == null) {
            throw new IOException(tar + ": index: not valid");
        }
        try {
            for (SegmentArchiveEntry e : r.listSegments()) {
                end = Math.max(end, ((IndexEntry) e).getPosition() + (e.getLength() + BLOCK - 1L) / BLOCK * BLOCK);
            }
        } finally {
            r.close();
        }
        try (RandomAccessFile f = new RandomAccessFile(tar, "rw")) {
            f.setLength(end);
        }
        return end;
    }
}
