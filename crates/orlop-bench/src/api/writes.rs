//! Server CPU of each kind of write, beside a plain update of the same object: patches
//! and applies also have to find out what changed, and whose it is.

use anyhow::Context;
use serde_json::{Value, json};

use super::{Server, Size};
use crate::{
    client::Client,
    load,
    report::{Better, Report},
};

const CLIENTS: usize = 16;
const COLLECTION: &str = "/apis/apps/v1/namespaces/default/deployments";
/// Variables of the large object's container; they make it about 50 KiB.
const VARIABLES: usize = 600;

/// One way to change an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    Update,
    MergePatch,
    StrategicMergePatch,
    Apply,
    /// Apply that changes nothing.
    ApplyAgain,
}

impl Write {
    const ALL: [Self; 5] =
        [Self::Update, Self::MergePatch, Self::StrategicMergePatch, Self::Apply, Self::ApplyAgain];

    fn name(self) -> &'static str {
        match self {
            Self::Update => "update",
            Self::MergePatch => "merge patch",
            Self::StrategicMergePatch => "strategic merge patch",
            Self::Apply => "apply",
            Self::ApplyAgain => "apply of what is so",
        }
    }

    async fn once(self, client: &Client, name: &str, variables: usize, n: usize) -> bool {
        let path = format!("{COLLECTION}/{name}");
        let image = format!("image:{n}");
        let container =
            json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
        let answered = match self {
            Self::Update => client.put(&path, &deployment(name, variables, n)).await,
            Self::MergePatch => client.patch(&path, &json!({"spec": {"revisionHistoryLimit": n}})).await,
            Self::StrategicMergePatch => client.strategic_merge_patch(&path, &container).await,
            Self::Apply => client.apply(&path, &deployment(name, variables, n)).await,
            Self::ApplyAgain => client.apply(&path, &deployment(name, variables, 0)).await,
        };
        answered.is_ok_and(|(code, _)| code < 300)
    }
}

fn deployment(name: &str, variables: usize, n: usize) -> Value {
    let variables: Vec<Value> = (0..variables)
        .map(
            |number| json!({"name": format!("VARIABLE_{number:04}"), "value": format!("value {number:032}")}),
        )
        .collect();
    let container = json!({"name": "c", "image": format!("image:{n}"), "env": variables});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}},
        },
    })
}

/// Measures small and large objects.
pub(crate) async fn run(report: &mut Report, server: &Server, size: Size) -> anyhow::Result<()> {
    let client = Client::connect(&server.kubeconfig, 4).await?;
    for variables in [1, VARIABLES] {
        let kib = deployment("x", variables, 0).to_string().len().div_ceil(1024);
        for worker in 0..CLIENTS {
            let name = format!("writes-{variables}-{worker}");
            let (code, body) =
                client.apply(&format!("{COLLECTION}/{name}"), &deployment(&name, variables, 0)).await?;
            anyhow::ensure!(code < 300, "{code}: {}", String::from_utf8_lossy(&body));
        }
        let mut update = None;
        for write in Write::ALL {
            let (before, client) = (server.cpu_seconds(), client.clone());
            let done = load::run(CLIENTS, size.time, move |worker, n| {
                let client = client.clone();
                async move {
                    let name = format!("writes-{variables}-{worker}");
                    write.once(&client, &name, variables, n).await
                }
            })
            .await;
            anyhow::ensure!(done.errors == 0, "{} of {} failed", done.errors, write.name());
            let cost = (server.cpu_seconds() - before) * 1e6 / done.count().max(1) as f64;
            let name = format!("api: {} of {kib} KiB, processor time each", write.name());
            match update {
                None => report.alone(name, "us", cost),
                Some(update) => report.beside(name, "us", Better::Lower, cost, "a plain update", update),
            }
            update.get_or_insert(cost);
        }
    }
    let all = client.delete(COLLECTION).await.context("the objects stay")?;
    anyhow::ensure!(all.0 < 300, "the objects stay: {}", all.0);
    Ok(())
}
