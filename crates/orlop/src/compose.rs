//! `orlop compose`: ResourceGraphDefinitions against any Kubernetes.

mod install;
mod run;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, bail};
use orlop_client::{Client, Config};
use orlop_compose::{
    Metrics, Settings,
    crd::{definition_crd, revision_crd},
    definition::DefinitionSpec,
    graph::{Built, Limits, build, required_kinds},
    kinds::{Kind, Kinds, kinds_of_crd, untyped_kind},
    plan::{Action, Plan, plan_definition, plan_instance},
    render::{Outcome, render, to_dot, to_mermaid, to_svg},
};
use orlop_controllers::runtime::Manager;
use serde_json::Value;

pub(crate) use install::{Rights, grant, user};

/// Compose resources into new kinds: kro's ResourceGraphDefinitions.
#[derive(Debug, clap::Args)]
pub(crate) struct Compose {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run the controller against the cluster of the kubeconfig, or of the pod it runs in.
    Run(run::Run),
    /// Print the CRDs of ResourceGraphDefinition and GraphRevision. The controller installs them itself.
    Crd,
    /// Print the ClusterRoles of the controller.
    Rbac {
        /// Rights to the kinds that are composed.
        #[arg(long, value_enum, default_value_t)]
        rights: Rights,
    },
    /// Print everything that installs the controller in a cluster, for kubectl apply.
    Manifests {
        /// Namespace of the controller.
        #[arg(long, default_value = "kro-system", value_name = "NAME")]
        namespace: String,
        /// Container image of orlop.
        #[arg(long, default_value = concat!("orlop:", env!("CARGO_PKG_VERSION")), value_name = "IMAGE")]
        image: String,
        /// Rights to the kinds that are composed.
        #[arg(long, value_enum, default_value_t)]
        rights: Rights,
    },
    /// Check a definition without a cluster. Kinds whose CRD is not given are not type-checked.
    Validate(Files),
    /// Print the manifests of an instance without a cluster.
    Render {
        #[command(flatten)]
        files: Files,
        /// File with the instance.
        #[arg(long, value_name = "FILE")]
        instance: PathBuf,
    },
    /// Draw a definition's graph.
    Graph {
        #[command(flatten)]
        files: Files,
        /// Language of the picture.
        #[arg(long, default_value = "mermaid", value_parser = ["mermaid", "dot", "svg"])]
        format: String,
    },
    /// Show what applying an instance, or changing a definition, would change in the cluster.
    Plan {
        /// File with an instance or a definition.
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct Files {
    /// File with the definition.
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// File with CRDs of kinds that templates use. May be given several times.
    #[arg(long, value_name = "FILE")]
    crds: Vec<PathBuf>,
}

impl Compose {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Run(run) => run.run().await?,
            Command::Crd => print_all(&[definition_crd(), revision_crd()])?,
            Command::Rbac { rights } => print_all(&install::cluster_roles(rights))?,
            Command::Manifests { namespace, image, rights } => {
                print_all(&install::manifests(&namespace, &image, rights))?;
            }
            Command::Validate(files) => {
                files.build()?;
                println!("Validation successful! The ResourceGraphDefinition is valid.");
            }
            Command::Render { files, instance } => {
                let built = files.build()?;
                for instance in read(&instance)? {
                    print_rendered(&built, &instance)?;
                }
            }
            Command::Graph { files, format } => {
                let graph = files.build()?.graph;
                let picture = match format.as_str() {
                    "dot" => to_dot(&graph),
                    "svg" => to_svg(&graph),
                    _ => to_mermaid(&graph),
                };
                print!("{picture}");
            }
            Command::Plan { file } => {
                let client = client().await?;
                for object in read(&file)? {
                    let plans = match object["kind"].as_str() {
                        Some("ResourceGraphDefinition") => plan_definition(client.clone(), &object).await?,
                        _ => vec![plan_instance(client.clone(), &object).await?],
                    };
                    plans.iter().for_each(print_plan);
                }
            }
        }
        Ok(())
    }
}

/// Returns a client of the cluster that kubectl would use.
async fn client() -> anyhow::Result<Client> {
    let config = Config::infer().context("no cluster is configured")?;
    Ok(Client::connect(config).await?)
}

/// Registers the controller of ResourceGraphDefinitions.
pub(crate) fn register(manager: &mut Manager, settings: Settings, metrics: Metrics) {
    manager.register(orlop_compose::NAME, move |context| {
        orlop_compose::run(context, settings.clone(), metrics.clone())
    });
}

impl Files {
    fn build(&self) -> anyhow::Result<Built> {
        let definition = read(&self.file)?.into_iter().next().context("the file is empty")?;
        if definition["kind"] != "ResourceGraphDefinition" {
            bail!("{} holds no ResourceGraphDefinition", self.file.display());
        }
        let spec = DefinitionSpec::from_json(&definition["spec"]).map_err(anyhow::Error::msg)?;
        let mut kinds = Kinds::new();
        for file in &self.crds {
            let found = read(file)?.iter().flat_map(kinds_of_crd).collect::<Vec<Kind>>();
            kinds.extend(found.into_iter().map(|kind| (kind.gvk.clone(), Arc::new(kind))));
        }
        for gvk in required_kinds(&spec) {
            kinds.entry(gvk.clone()).or_insert_with(|| Arc::new(untyped_kind(gvk)));
        }
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        Ok(build(name, &spec, &kinds, Limits::default())?)
    }
}

/// Reads the documents of a YAML or JSON file.
fn read(file: &Path) -> anyhow::Result<Vec<Value>> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).with_context(|| format!("{} is no YAML", file.display()))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

fn print_all(objects: &[Value]) -> anyhow::Result<()> {
    for object in objects {
        println!("---\n{}", serde_saphyr::to_string(object)?.trim_end());
    }
    Ok(())
}

fn print_rendered(built: &Built, instance: &Value) -> anyhow::Result<()> {
    for node in render(&built.graph, instance) {
        match node.outcome {
            Outcome::Manifests(manifests) => print_all(&manifests)?,
            Outcome::Skipped => println!("---\n# {}: skipped", node.id),
            Outcome::External => println!("---\n# {}: objects of others", node.id),
            Outcome::Pending(error) => println!("---\n# {}: known only in a cluster: {error}", node.id),
            Outcome::Failed(error) => bail!("{}: {error}", node.id),
        }
    }
    Ok(())
}

fn print_plan(plan: &Plan) {
    println!("{}", plan.instance);
    for line in &plan.now {
        println!("  ! {line}");
    }
    for change in &plan.changes {
        let sign = match change.action {
            Action::Create => '+',
            Action::Change => '~',
            Action::Keep => '=',
            Action::Delete => '-',
            Action::Wait => '?',
        };
        println!("  {sign} {}", change.object);
        for field in &change.fields {
            println!("      {field}");
        }
    }
}
