import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/** Iceberg's reference REST catalog on loopback, its tables in SQLite. Arguments: database, warehouse, port file. */
public class RestServer {
  public static void main(String[] arguments) throws Exception {
    JdbcCatalog catalog = new JdbcCatalog();
    catalog.setConf(new Configuration());
    catalog.initialize("rest", Map.of(
        "uri", "jdbc:sqlite:" + arguments[0],
        "jdbc.schema-version", "V1",
        // SQLite allows one writer; a pool would only make requests fail on its lock.
        "clients", "1",
        "warehouse", arguments[1]));

    ServletContextHandler context = new ServletContextHandler();
    context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
    Server server = new Server();
    ServerConnector connector = new ServerConnector(server);
    connector.setHost("127.0.0.1");
    server.addConnector(connector);
    server.setHandler(context);
    server.start();

    // Written aside and renamed: whoever sees the file sees all of it.
    Path portFile = Path.of(arguments[2]);
    Path aside = portFile.resolveSibling(portFile.getFileName() + ".new");
    Files.writeString(aside, Integer.toString(connector.getLocalPort()));
    Files.move(aside, portFile);
    server.join();
  }
}
