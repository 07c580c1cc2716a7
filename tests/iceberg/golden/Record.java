// Records what the Java library makes of scenarios.py. Run by record.py, which says how.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import org.apache.iceberg.MetadataUpdate;
import org.apache.iceberg.MetadataUpdateParser;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableMetadataParser;

public class Record {
  public static void main(String[] args) throws Exception {
    ObjectMapper mapper = new ObjectMapper();
    JsonNode scenarios = mapper.readTree(new File(args[0]));
    ObjectNode results = mapper.createObjectNode();
    scenarios.fields().forEachRemaining(entry -> {
      try {
        results.set(entry.getKey(), mapper.readTree(apply(entry.getValue(), results)));
      } catch (Exception problem) {
        results.put(entry.getKey(), problem.getClass().getSimpleName() + ": " + problem.getMessage());
      }
    });
    mapper.writerWithDefaultPrettyPrinter().writeValue(new File(args[1]), results);
  }

  private static String apply(JsonNode scenario, JsonNode results) {
    String from = scenario.get("from").asText();
    TableMetadata.Builder builder = scenario.get("from").isNull()
        ? TableMetadata.buildFromEmpty(scenario.get("version").asInt())
        : TableMetadata.buildFrom(TableMetadataParser.fromJson(results.get(from).toString()));
    for (JsonNode json : scenario.get("updates")) {
      MetadataUpdate update = MetadataUpdateParser.fromJson(json.toString());
      update.applyTo(builder);
    }
    return TableMetadataParser.toJson(builder.build());
  }
}
