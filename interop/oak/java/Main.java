package oakcheck;

import java.io.BufferedReader;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The command line. Each command answers with one line of JSON, in which "ok" says
 * whether all is well and "faults" what is not; "error" is there only if the
 * command could not be done. The exit codes are 0, 1 and 2.
 */
final class Main {
    private static final String USAGE = "usage: COMMAND ARGUMENTS [--datastore DIR] [--in-place] [--no-segments] [--no-ids]\n"
            + "  tar FILE..             index, graph, binary references and segment headers\n"
            + "  verify FILE..          the parts of each tar agree with each other\n"
            + "  dump DIR               all of a store\n"
            + "  content DIR EXPECT     a read-only store holds what a dump says, without recovery\n"
            + "  exact DIR EXPECT       the same, with record ids, order, journal, manifest and tars\n"
            + "  equal DIR DIR [PATH]   the newest revisions of two stores are equal, at a path or as a whole\n"
            + "  check DIR              the reference's check of head, checkpoints and binaries\n"
            + "  commit DIR             a store takes a commit and keeps what it had\n"
            + "  survive DIR            a store keeps what it has through compaction and cleanup\n"
            + "  survive-tail DIR       the same with compactions of the tail while it is open\n"
            + "  recover DIR            opened read-write, which recovers; then dump\n"
            + "  recover-journal DIR    the journal made anew; then it\n"
            + "  cleanup DIR [RETAIN]   generations swept, but for the newest 1 or 2; then dump\n"
            + "  compact DIR            the same after full compaction\n"
            + "  random DIR SEED        makes DIR/segmentstore, and by chance DIR/datastore\n"
            + "  random-open DIR SEED   the same, as a process that was killed left it\n"
            + "  big DIR [SECTIONS]     makes a store of 436 MB in DIR, or of 1/20 of that a section\n"
            + "  unindex FILE           cuts off a tar all but its segments\n"
            + "  azure-put CONNECTION CONTAINER PREFIX DIR   the reference's copy of a store to Azure\n"
            + "  azure-get CONNECTION CONTAINER PREFIX DIR   and back\n"
            + "  azure-same CONNECTION CONTAINER PREFIX DIR  nodes, records and head there are those of a store\n"
            + "  azure-commit CONNECTION CONTAINER PREFIX WORD  a store there takes a commit and keeps what it had\n"
            + "  azure-open CONNECTION CONTAINER PREFIX      a store there opened read-write, which recovers\n"
            + "  azure-check CONNECTION CONTAINER PREFIX     the reference's check of a store there\n"
            + "  azure-list CONNECTION CONTAINER PREFIX      names, lengths, types and metadata of blobs\n"
            + "  vault-make DIR SEED    makes a repository in DIR/segmentstore by the JCR API\n"
            + "  vault-pack DIR FILE PATH..  FileVault's package of nodes of such a one\n"
            + "  vault-install DIR FILE  a package installed into such a one, which need not be there\n"
            + "  measure open|segments|nodes|check|check-head|recover DIR\n"
            + "  measure read DIR FILE  the nodes at the paths in a file\n"
            + "  live DIR SEED          opens a store and writes to it as lines of stdin say: see LiveStore\n"
            + "  batch                  command lines, as arrays of JSON, line by line from stdin\n"
            + "A command works on a copy of a store, unless --in-place; measure, unindex, vault-install and what\n"
            + "makes stores work in place.";

    private final List<String> words = new ArrayList<>();
    private final List<Path> copies = new ArrayList<>();
    File datastore;
    boolean inPlace;
    boolean segments = true;
    boolean ids = true;

    private Main(List<String> line) {
        for (int i = 0; i < line.size(); i++) {
            switch (line.get(i)) {
                case "--in-place":
                    inPlace = true;
                    break;
                case "--no-segments":
                    segments = false;
                    break;
                case "--no-ids":
                    ids = false;
                    break;
                case "--datastore":
                    datastore = new File(line.get(++i));
                    break;
                default:
                    words.add(line.get(i));
            }
        }
    }

    public static void main(String[] args) throws IOException {
        // What the reference prints is no answer.
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        List<String> line = Arrays.asList(args);
        if (line.isEmpty()) {
            System.err.println(USAGE);
            System.exit(2);
        }
        if (line.get(0).equals("live") && line.size() == 3) {
            try {
                LiveStore.run(new File(line.get(1)), Long.parseLong(line.get(2)), new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)), answers);
                System.exit(0);
            } catch (Exception e) {
                e.printStackTrace();
                System.exit(2);
            }
        }
        if (!line.equals(Arrays.asList("batch"))) {
            Map<String, Object> answer = answer(line);
            answers.println(Json.line(answer));
            answers.flush();
            System.exit(answer.containsKey("error") ? 2 : answer.get("ok").equals(true) ? 0 : 1);
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String s; (s = in.readLine()) != null;) {
            List<String> words = new ArrayList<>();
            for (Object w : (List<?>) Json.parse(s)) {
                words.add((String) w);
            }
            answers.println(Json.line(answer(words)));
            answers.flush();
        }
        // Threads of stores that could not be opened may still be there.
        System.exit(0);
    }

    private static Map<String, Object> answer(List<String> line) {
        Main m = new Main(line);
        try {
            Map<String, Object> a = m.run();
            List<?> faults = (List<?>) a.computeIfAbsent("faults", k -> new ArrayList<>());
            a.put("ok", faults.isEmpty());
            return a;
        } catch (Exception | StackOverflowError | OutOfMemoryError e) {
            Map<String, Object> a = answer("error", line + ": " + e);
            a.put("ok", false);
            return a;
        } finally {
            m.deleteCopies();
        }
    }

    private Map<String, Object> run() throws Exception {
        switch (words.get(0)) {
            case "tar":
                return Checks.tar(this);
            case "verify":
                return Checks.verify(this);
            case "dump":
                return Checks.dump(this);
            case "content":
                return Checks.compare(this, false);
            case "exact":
                return Checks.compare(this, true);
            case "equal":
                return Checks.equal(this);
            case "check":
                return Checks.check(store(1), false, true);
            case "commit":
                return Checks.commit(this);
            case "survive":
                return Checks.survive(this);
            case "survive-tail":
                return Checks.surviveTail(this);
            case "recover":
                return Checks.recover(this);
            case "recover-journal":
                return Checks.recoverJournal(this);
            case "cleanup":
                return Checks.sweep(this, false);
            case "compact":
                return Checks.sweep(this, true);
            case "random":
                return RandomStore.make(file(1), Long.parseLong(word(2)), false);
            case "random-open":
                return RandomStore.make(file(1), Long.parseLong(word(2)), true);
            case "big":
                return BigStore.make(file(1), words.size() > 2 ? Integer.parseInt(word(2)) : 20);
            case "unindex":
                return answer("length", Tar.unindex(file(1)));
            case "vault-make":
            case "vault-pack":
            case "vault-install":
                return further("Vault");
            case "measure":
                return Measure.run(this);
            case "azure-put":
            case "azure-get":
            case "azure-same":
            case "azure-open":
            case "azure-commit":
            case "azure-check":
            case "azure-list":
                return further("Azure");
            default:
                throw new IllegalArgumentException("no such command");
        }
    }

    /** A program that is only there with the jars of some versions. */
    @SuppressWarnings("unchecked")
    private Map<String, Object> further(String program) throws Exception {
        return (Map<String, Object>) Class.forName("oakcheck." + program).getDeclaredMethod("run", Main.class).invoke(null, this);
    }

    static Map<String, Object> answer(String key, Object value) {
        Map<String, Object> a = new LinkedHashMap<>();
        a.put(key, value);
        return a;
    }

    int count() {
        return words.size();
    }

    String word(int i) {
        if (i >= words.size()) {
            throw new IllegalArgumentException("too few arguments");
        }
        return words.get(i);
    }

    File file(int i) {
        return new File(word(i));
    }

    /** A store to work on: a copy of the one that the argument names, unless it is to be that. */
    File store(int i) throws IOException {
        if (inPlace) {
            return file(i);
        }
        Path copy = Files.createTempDirectory("oakcheck");
        copies.add(copy);
        Store.copy(file(i).toPath(), copy);
        return copy.toFile();
    }

    private void deleteCopies() {
        for (Path p : copies) {
            try {
                Store.delete(p);
            } catch (IOException e) {
                System.err.println(e);
            }
        }
    }
}
