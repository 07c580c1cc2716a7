package org.apache.iceberg;

import java.io.File;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.iceberg.encryption.PlaintextEncryptionManager;
import org.apache.iceberg.inmemory.InMemoryFileIO;
import org.apache.iceberg.io.FileAppender;
import org.apache.iceberg.types.Types;

/**
 * Writes the golden files beside it: javac and java with iceberg-spark-runtime-4.1_2.13-1.12.0.jar and PySpark's jars on
 * the class path; the argument is the folder. In this package because ManifestLists is not public.
 */
public class GoldenManifests {
  public static void main(String[] args) throws Exception {
    Schema schema =
        new Schema(
            4,
            Types.NestedField.required(1, "id", Types.LongType.get()),
            Types.NestedField.optional(2, "day", Types.DateType.get()),
            Types.NestedField.optional(3, "price", Types.DecimalType.of(9, 2)),
            Types.NestedField.optional(4, "key", Types.UUIDType.get()),
            Types.NestedField.optional(5, "at", Types.TimestampType.withZone()),
            Types.NestedField.optional(6, "name", Types.StringType.get()));
    PartitionSpec spec =
        PartitionSpec.builderFor(schema)
            .withSpecId(3)
            .identity("day")
            .identity("price")
            .identity("key")
            .day("at", "at-day")
            .bucket("name", 16, "name bucket")
            .build();
    for (int version = 1; version <= 3; version++) {
      write(new InMemoryFileIO(), version, schema, spec, args[0]);
    }
  }

  private static void write(InMemoryFileIO io, int version, Schema schema, PartitionSpec spec, String folder)
      throws Exception {
    PartitionData partition = new PartitionData(spec.partitionType());
    partition.set(0, 20000);
    partition.set(1, new BigDecimal("-12.34"));
    partition.set(2, UUID.fromString("f79c3e09-677c-4bbd-a479-3f349cb785e7"));
    partition.set(3, 19000);
    partition.set(4, 7);
    Metrics metrics =
        new Metrics(
            10L,
            Map.of(1, 100L),
            Map.of(1, 10L),
            Map.of(1, 0L),
            Map.of(),
            Map.of(1, ByteBuffer.wrap(new byte[] {1, 0, 0, 0, 0, 0, 0, 0})),
            Map.of(1, ByteBuffer.wrap(new byte[] {9, 0, 0, 0, 0, 0, 0, 0})));
    DataFile full =
        DataFiles.builder(spec)
            .withPath("s3://b/t/data/full.parquet")
            .withFormat(FileFormat.PARQUET)
            .withPartition(partition)
            .withFileSizeInBytes(1L << 40)
            .withMetrics(metrics)
            .withSplitOffsets(List.of(4L, 1L << 33))
            .build();
    DataFile bare =
        DataFiles.builder(spec)
            .withPath("s3://b/t/data/bare.orc")
            .withFormat(FileFormat.ORC)
            .withPartition(new PartitionData(spec.partitionType()))
            .withFileSizeInBytes(5)
            .withRecordCount(1)
            .build();
    String path = "s3://b/t/metadata/v" + version + "-m0.avro";
    ManifestWriter<DataFile> writer = ManifestFiles.write(version, spec, io.newOutputFile(path), 7L);
    writer.add(full);
    writer.existing(bare, 6L, 3L, 2L);
    writer.delete(bare, 3L, 2L);
    writer.close();
    String list = "s3://b/t/metadata/v" + version + "-list.avro";
    try (FileAppender<ManifestFile> appender =
        ManifestLists.write(
            version,
            io.newOutputFile(list),
            PlaintextEncryptionManager.instance(),
            7L,
            6L,
            version == 1 ? 0L : 9L,
            version == 3 ? 1000L : null)) {
      appender.add(writer.toManifestFile());
    }
    for (String each : List.of(path, list)) {
      try (var in = io.newInputFile(each).newStream()) {
        Files.write(new File(folder, each.substring(each.lastIndexOf('/') + 1)).toPath(), in.readAllBytes());
      }
    }
  }
}
