//! Many definitions that nobody uses: what creating them, holding them and telling of them costs.

use std::{path::Path, time::Duration};

use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use super::Server;
use crate::{client::Client, report::Report};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const AT_ONCE: usize = 4;
/// Groups that they are spread over.
const GROUPS: usize = 200;
/// Fields of a schema, which then comes to 5 KiB.
const FIELDS: usize = 20;
/// Time for memory to settle.
const SETTLE: Duration = Duration::from_secs(4);
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Creates definitions, restarts the server, and asks for what tells of them.
pub(crate) async fn run(
    report: &mut Report,
    program: &Path,
    folder: &Path,
    count: usize,
) -> anyhow::Result<()> {
    let server = Server::start(program, folder)?;
    let client = Client::connect(&server.kubeconfig, AT_ONCE).await?;
    client.get_compressed("/apis", AGGREGATED).await?;
    sleep(SETTLE).await;
    let idle = server.resident_mib();
    report.alone("definitions: RSS without any", "MiB", idle);
    let (started, processor) = (Instant::now(), server.cpu_seconds());
    let create = |index: usize| {
        let client = client.clone();
        async move {
            let (code, body) = client.post(DEFINITIONS, &definition(index)).await?;
            anyhow::ensure!(code == 201, "{code}: {}", String::from_utf8_lossy(&body));
            Ok(())
        }
    };
    stream::iter(0..count).map(create).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    report.alone(format!("definitions: {count} created"), "s", started.elapsed().as_secs_f64());
    report.alone(
        "definitions: processor time of creating",
        "ms each",
        (server.cpu_seconds() - processor) * 1e3 / count as f64,
    );
    report.alone("definitions: more RSS at once", "MiB", server.resident_mib() - idle);
    sleep(SETTLE).await;
    report.alone("definitions: more RSS some seconds later", "MiB", server.resident_mib() - idle);
    drop((client, server));

    let server = Server::start(program, folder)?;
    let client = Client::connect(&server.kubeconfig, 1).await?;
    sleep(SETTLE).await;
    report.alone("definitions: more RSS after a restart", "MiB", server.resident_mib() - idle);
    let group = "/openapi/v3/apis/g0.example.com/v1";
    let asked = [
        ("aggregated discovery", "/apis", AGGREGATED),
        ("index of OpenAPI v3", "/openapi/v3", "application/json"),
        ("OpenAPI v3 of a group", group, "application/json"),
        ("OpenAPI v2", "/openapi/v2", "application/json"),
        (
            "OpenAPI v2 in protobuf",
            "/openapi/v2",
            "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
        ),
    ];
    for (what, path, accept) in asked {
        for time in ["at first", "again"] {
            let asked = Instant::now();
            let length = client.get_compressed(path, accept).await?;
            report.alone(format!("definitions: {what}, {time}"), "ms", asked.elapsed().as_secs_f64() * 1e3);
            if time == "at first" {
                report.alone(format!("definitions: {what}, length"), "KiB", length as f64 / 1024.0);
            }
        }
    }
    report.alone("definitions: more RSS after all that", "MiB", server.resident_mib() - idle);
    sleep(SETTLE).await;
    report.alone("definitions: more RSS some seconds after that", "MiB", server.resident_mib() - idle);
    Ok(())
}

/// A definition with a schema of some size, as those of real projects are.
fn definition(index: usize) -> Value {
    let group = format!("g{}.example.com", index % GROUPS);
    let (plural, kind) = (format!("things{index}"), format!("Thing{index}"));
    let field = |index: usize| {
        let schema = json!({
            "type": "object",
            "description": "What it is, said at the length that people say it at, which is long for most fields.",
            "properties": {
                "name": {"type": "string", "minLength": 1}, "value": {"type": "integer", "default": index},
            },
        });
        (format!("field{index}"), schema)
    };
    let fields: Map<String, Value> = (0..FIELDS).map(field).collect();
    let rules = json!([{"rule": "!has(self.field1) || self.field1.value < 100"}]);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": fields, "x-kubernetes-validations": rules},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}},
            }],
        },
    })
}
