package oakcheck;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.sun.management.OperatingSystemMXBean;

import org.apache.jackrabbit.oak.api.Blob;
import org.apache.jackrabbit.oak.api.PropertyState;
import org.apache.jackrabbit.oak.api.Type;
import org.apache.jackrabbit.oak.commons.PathUtils;
import org.apache.jackrabbit.oak.segment.SegmentId;
import org.apache.jackrabbit.oak.segment.compaction.SegmentGCOptions;
import org.apache.jackrabbit.oak.segment.file.FileStore;
import org.apache.jackrabbit.oak.segment.file.FileStoreBuilder;
import org.apache.jackrabbit.oak.segment.file.ReadOnlyFileStore;
import org.apache.jackrabbit.oak.spi.state.ChildNodeEntry;
import org.apache.jackrabbit.oak.spi.state.NodeState;

/**
 * One job of the reference, timed within the process so that the start of Java does
 * not count: Wall and CPU in seconds, RSS in bytes at its most, and what it came to.
 * Tars are mapped into memory, as the reference's own commands have them.
 */
final class Measure {
    private long nodes, properties, bytes;

    private Measure() {}

    static Map<String, Object> run(Main m) throws Exception {
        OperatingSystemMXBean os = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        Measure did = new Measure();
        long wall = System.nanoTime(), cpu = os.getProcessCpuTime();
        Map<String, Object> result = did.job(m, m.word(1), m.file(2));
        long wallEnd = System.nanoTime(), cpuEnd = os.getProcessCpuTime();
        Map<String, Object> a = new LinkedHashMap<>();
        a.put("Wall", (wallEnd - wall) / 1e9);
        a.put("CPU", (cpuEnd - cpu) / 1e9);
        a.put("RSS", mostMemory());
        a.putAll(result);
        return a;
    }

    private Map<String, Object> job(Main m, String job, File dir) throws Exception {
        switch (job) {
            case "check":
                return Checks.check(dir, true, true);
            case "check-head":
                return Checks.check(dir, true, false);
            case "recover-journal":
                return Checks.recoverJournal(dir);
            case "compact":
                try (FileStore s = FileStoreBuilder.fileStoreBuilder(dir).withGCOptions(SegmentGCOptions.defaultGCOptions().setOffline()).build()) {
                    if (!s.compactFull()) {
                        throw new IOException("compaction: not done");
                    }
                    s.cleanup();
                }
                return Main.answer("files", Store.files(dir));
            case "recover":
                FileStoreBuilder.fileStoreBuilder(dir).withMaxFileSize(256).build().close();
                return Main.answer("files", Store.files(dir));
            default:
        }
        try (ReadOnlyFileStore s = FileStoreBuilder.fileStoreBuilder(dir).buildReadOnly()) {
            Map<String, Object> a = Main.answer("head", s.getHead().getRecordId().toString10());
            NodeState root = s.getHead().getChildNode("root");
            switch (job) {
                case "open":
                    break;
                case "segments":
                    long count = 0, size = 0;
                    for (SegmentId id : s.getSegmentIds()) {
                        count++;
                        size += id.getSegment().size();
                    }
                    a.put("segments", count);
                    a.put("size", size);
                    break;
                case "nodes":
                    walk(root);
                    break;
                case "read":
                    for (String path : Files.readAllLines(m.file(3).toPath())) {
                        NodeState n = root;
                        for (String name : PathUtils.elements(path)) {
                            n = n.getChildNode(name);
                        }
                        if (!n.exists()) {
                            throw new IllegalArgumentException(path + ": no such node");
                        }
                        read(n);
                    }
                    break;
                default:
                    throw new IllegalArgumentException("measure " + job + ": no such job");
            }
            a.put("nodes", nodes);
            a.put("properties", properties);
            a.put("bytes", bytes);
            return a;
        }
    }

    /** Linux has it in kB; elsewhere it is not known. */
    private static long mostMemory() throws IOException {
        File status = new File("/proc/self/status");
        if (status.exists()) {
            for (String l : Files.readAllLines(status.toPath())) {
                if (l.startsWith("VmHWM:")) {
                    return Long.parseLong(l.replaceAll("[^0-9]", "")) << 10;
                }
            }
        }
        return 0;
    }

    private void walk(NodeState n) throws IOException {
        read(n);
        for (ChildNodeEntry c : n.getChildNodeEntries()) {
            walk(c.getNodeState());
        }
    }

    private void read(NodeState n) throws IOException {
        nodes++;
        byte[] buf = new byte[8192];
        for (PropertyState p : n.getProperties()) {
            properties++;
            for (int i = 0; i < p.count(); i++) {
                if (p.getType().tag() != Type.BINARY.tag()) {
                    bytes += p.getValue(Type.STRING, i).length();
                    continue;
                }
                Blob b = p.getValue(Type.BINARY, i);
                try (InputStream in = b.getNewStream()) {
                    for (int k; (k = in.read(buf)) > 0;) {
                        bytes += k;
                    }
                }
            }
        }
    }
}
