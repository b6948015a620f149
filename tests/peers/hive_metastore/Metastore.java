import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.IHMSHandler;
import org.apache.hadoop.hive.metastore.RetryingHMSHandler;
import org.apache.hadoop.hive.metastore.api.ThriftHiveMetastore;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;

/** A Hive metastore on the loopback only, its tables in Derby: the stock program listens on every interface. */
public final class Metastore {
    public static void main(String[] arguments) throws Exception {
        Path work = Path.of(arguments[0]);
        int port = Integer.parseInt(arguments[1]);
        HiveConf conf = new HiveConf();
        conf.set("javax.jdo.option.ConnectionURL", "jdbc:derby:" + work.resolve("derby") + ";create=true");
        conf.set("hive.metastore.warehouse.dir", work.resolve("warehouse").toUri().toString());
        conf.set("datanucleus.schema.autoCreateAll", "true");
        conf.set("hive.metastore.schema.verification", "false");
        conf.set("datanucleus.connectionPoolingType", "NONE");
        TxnDbUtil.setConfValues(conf);
        TxnDbUtil.prepDb(conf);
        HiveMetaStore.HMSHandler base = new HiveMetaStore.HMSHandler("metastore", conf, false);
        IHMSHandler handler = RetryingHMSHandler.getProxy(conf, base, true);
        TServerSocket socket = new TServerSocket(new InetSocketAddress("127.0.0.1", port));
        TThreadPoolServer server = new TThreadPoolServer(new TThreadPoolServer.Args(socket)
            .processor(new ThriftHiveMetastore.Processor<>(handler)));
        Files.writeString(work.resolve("ready"), Integer.toString(port));
        server.serve();
    }
}
