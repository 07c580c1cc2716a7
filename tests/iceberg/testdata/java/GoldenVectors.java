package org.apache.iceberg;

import java.io.File;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.LongStream;
import org.apache.iceberg.deletes.BaseDVFileWriter;
import org.apache.iceberg.inmemory.InMemoryFileIO;
import org.apache.iceberg.types.Types;

/**
 * Writes deletion vectors with their manifest, and a manifest whose files inherit row ids with what Java reads of it.
 * Run as GoldenManifests beside it; the argument is the folder.
 */
public class GoldenVectors {
  private static final InMemoryFileIO IO = new InMemoryFileIO();
  private static final PartitionSpec SPEC = PartitionSpec.unpartitioned();

  public static void main(String[] args) throws Exception {
    String puffin = "s3://b/t/data/vectors.puffin";
    BaseDVFileWriter vectors = new BaseDVFileWriter(() -> IO.newOutputFile(puffin), path -> null);
    delete(vectors, "few", LongStream.of(0, 5, 7, 70_000));
    delete(vectors, "run", LongStream.range(10, 200_000));
    delete(vectors, "every third", LongStream.range(0, 60_000).map(each -> each * 3));
    delete(vectors, "far", LongStream.of(1, (3L << 32) + 9));
    vectors.close();
    String deletes = "s3://b/t/metadata/vectors-m1.avro";
    ManifestWriter<DeleteFile> writer = ManifestFiles.writeDeleteManifest(3, SPEC, IO.newOutputFile(deletes), 7L);
    vectors.result().deleteFiles().forEach(writer::add);
    writer.close();
    String rows = "s3://b/t/metadata/rows-m0.avro";
    ManifestFile manifest = rows(rows);
    List<String> read = new ArrayList<>();
    read.add(read(manifest, 1000L));
    read.add(read(manifest, null));
    for (String each : List.of(puffin, deletes, rows)) {
      try (var in = IO.newInputFile(each).newStream()) {
        Files.write(new File(args[0], each.substring(each.lastIndexOf('/') + 1)).toPath(), in.readAllBytes());
      }
    }
    Files.writeString(new File(args[0], "rows-m0.json").toPath(), read + "\n");
  }

  private static void delete(BaseDVFileWriter vectors, String path, LongStream positions) {
    positions.forEach(each -> vectors.delete(path, each, SPEC, null));
  }

  private static ManifestFile rows(String path) throws Exception {
    ManifestWriter<DataFile> writer = ManifestFiles.write(3, SPEC, IO.newOutputFile(path), 7L);
    writer.add(file("a", 10, null));
    writer.add(file("b", 20, 5L));
    writer.delete(file("c", 30, null), 3L, 2L);
    writer.existing(file("d", 40, null), 6L, 3L, 2L);
    writer.existing(file("e", 50, 7L), 6L, 3L, 2L);
    writer.add(file("f", 60, null));
    writer.close();
    return writer.toManifestFile();
  }

  private static DataFile file(String path, long records, Long firstRowId) {
    return DataFiles.builder(SPEC)
        .withPath(path)
        .withFormat(FileFormat.PARQUET)
        .withFileSizeInBytes(5)
        .withRecordCount(records)
        .withFirstRowId(firstRowId)
        .build();
  }

  private static String read(ManifestFile manifest, Long firstRowId) throws Exception {
    GenericManifestFile line = (GenericManifestFile) manifest.copy();
    line.set(15, firstRowId);
    line.set(5, 9L);
    line.set(4, 2L);
    List<Long> ids = new ArrayList<>();
    try (ManifestReader<DataFile> reader = ManifestFiles.read(line, IO, Map.of(0, SPEC))) {
      reader.entries().forEach(entry -> ids.add(entry.file().firstRowId()));
    }
    return ids.toString();
  }
}
