import java.io.File;
import java.io.IOException;
import java.io.Reader;

import org.apache.lucene.analysis.Analyzer;
import org.apache.lucene.analysis.Tokenizer;
import org.apache.lucene.analysis.tokenattributes.CharTermAttribute;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.FieldType;
import org.apache.lucene.document.NumericDocValuesField;
import org.apache.lucene.document.StringField;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.NoMergePolicy;
import org.apache.lucene.index.Term;
import org.apache.lucene.store.Directory;
import org.apache.lucene.store.FSDirectory;
import org.apache.lucene.util.Version;

/** Makes the indexes of indexes.tar.gz with lucene-core 4.7.2. */
public class Make {
    private static final Analyzer WHOLE = new Analyzer() {
        @Override
        protected TokenStreamComponents createComponents(String field, Reader reader) {
            return new TokenStreamComponents(new Tokenizer(reader) {
                private final CharTermAttribute term = addAttribute(CharTermAttribute.class);
                private boolean done;

                @Override
                public boolean incrementToken() throws IOException {
                    if (done) {
                        return false;
                    }
                    clearAttributes();
                    for (int c = input.read(); c >= 0; c = input.read()) {
                        term.append((char) c);
                    }
                    return done = true;
                }

                @Override
                public void reset() throws IOException {
                    super.reset();
                    done = false;
                }
            });
        }
    };

    public static void main(String[] args) throws Exception {
        for (String name : new String[] {"compound", "single"}) {
            boolean compound = name.equals("compound");
            Directory dir = FSDirectory.open(new File(args[0], name));
            IndexWriterConfig how = new IndexWriterConfig(Version.LUCENE_47, WHOLE);
            how.setMergePolicy(NoMergePolicy.COMPOUND_FILES);
            how.setUseCompoundFile(compound);
            IndexWriter w = new IndexWriter(dir, how);
            FieldType vectors = new FieldType(TextField.TYPE_STORED);
            vectors.setStoreTermVectors(true);
            for (int segment = 0; segment < 2; segment++) {
                for (int i = 0; i < 3; i++) {
                    Document doc = new Document();
                    doc.add(new StringField(":path", "/content/" + segment + "/" + i, Field.Store.YES));
                    doc.add(new TextField("text", "hello" + i, Field.Store.YES));
                    doc.add(new NumericDocValuesField("n", i));
                    doc.add(new Field("vector", "x" + i, vectors));
                    w.addDocument(doc);
                }
                w.commit();
            }
            w.deleteDocuments(new Term(":path", "/content/0/1"));
            w.commit();
            if (!compound) {
                w.updateNumericDocValue(new Term(":path", "/content/1/1"), "n", 9L);
                w.commit();
            }
            w.close();
        }
    }
}
