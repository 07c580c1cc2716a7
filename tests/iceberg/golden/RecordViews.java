// Records what the Java library makes of view_scenarios.py. Run by record_views.py, which says how.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import org.apache.iceberg.MetadataUpdateParser;
import org.apache.iceberg.view.ViewMetadata;
import org.apache.iceberg.view.ViewMetadataParser;

public class RecordViews {
  public static void main(String[] args) throws Exception {
    ObjectMapper mapper = new ObjectMapper();
    JsonNode scenarios = mapper.readTree(new File(args[0]));
    ObjectNode results = mapper.createObjectNode();
    scenarios.fields().forEachRemaining(entry -> {
      try {
        results.set(entry.getKey(), mapper.readTree(apply(entry.getValue(), results)));
      } catch (Exception problem) {
        results.put(entry.getKey(), problem.getMessage());
      }
    });
    mapper.writerWithDefaultPrettyPrinter().writeValue(new File(args[1]), results);
  }

  private static String apply(JsonNode scenario, JsonNode results) {
    ViewMetadata.Builder builder = scenario.get("from").isNull()
        ? ViewMetadata.builder()
        : ViewMetadata.buildFrom(ViewMetadataParser.fromJson(results.get(scenario.get("from").asText()).toString()));
    for (JsonNode json : scenario.get("updates")) {
      MetadataUpdateParser.fromJson(json.toString()).applyTo(builder);
    }
    return ViewMetadataParser.toJson(builder.build());
  }
}
