//! `orlop compose`: ResourceGraphDefinitions against any Kubernetes.

mod install;
mod run;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use orlop_client::{Client, Config};
use orlop_compose::{
    Metrics, Settings,
    crd::{definition_crd, revision_crd},
    graph::Built,
    offline::{Compiled, compile},
    plan::{Action, Change, Plan, plan_definition, plan_instance},
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
    /// Check definitions without a cluster. Custom kinds whose CRD or definition is not given are not type-checked.
    Validate(Files),
    /// Print the manifests of an instance without a cluster.
    Render {
        #[command(flatten)]
        files: Files,
        /// File with the instance.
        #[arg(long, value_name = "FILE")]
        instance: PathBuf,
    },
    /// Draw the graphs of definitions.
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
    /// File with the definition, or several.
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// File with CRDs, or definitions, of kinds that templates use. May be given several times.
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
                for _ in files.build()? {
                    println!("Validation successful! The ResourceGraphDefinition is valid.");
                }
            }
            Command::Render { files, instance } => {
                let built = files.build()?;
                for instance in read(&instance)? {
                    let text = |field: &str| instance[field].as_str().unwrap_or_default();
                    let (version, kind) = (text("apiVersion"), text("kind"));
                    let definition = built.iter().find(|built| {
                        built.graph.gvk.api_version() == version && built.graph.gvk.kind == kind
                    });
                    let definition = definition.with_context(|| {
                        format!("no ResourceGraphDefinition defines {version}, Kind={kind}")
                    })?;
                    print_rendered(definition, &instance)?;
                }
            }
            Command::Graph { files, format } => {
                for built in files.build()? {
                    let picture = match format.as_str() {
                        "dot" => to_dot(&built.graph),
                        "svg" => to_svg(&built.graph),
                        _ => to_mermaid(&built.graph),
                    };
                    print!("{picture}");
                }
            }
            Command::Plan { file } => {
                let client = client().await?;
                for object in read(&file)? {
                    if object["kind"] == "ResourceGraphDefinition" {
                        let plan = plan_definition(client.clone(), &object).await?;
                        println!("{}", object["metadata"]["name"].as_str().unwrap_or_default());
                        for line in &plan.breaking {
                            println!("  ! breaking change, refused unless it is allowed: {line}");
                        }
                        print_change(&plan.crd);
                        plan.instances.iter().for_each(print_plan);
                    } else {
                        print_plan(&plan_instance(client.clone(), &object).await?);
                    }
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
    /// Compiles the definitions of the file.
    fn build(&self) -> anyhow::Result<Vec<Built>> {
        let is_definition = |document: &Value| document["kind"] == "ResourceGraphDefinition";
        let (definitions, mut others): (Vec<Value>, Vec<Value>) =
            read(&self.file)?.into_iter().partition(is_definition);
        if definitions.is_empty() {
            bail!("{} holds no ResourceGraphDefinition", self.file.display());
        }
        for file in &self.crds {
            others.extend(read(file)?);
        }
        let several = definitions.len() > 1;
        let mut built = Vec::new();
        let mut faults = Vec::new();
        for Compiled { name, result } in compile(&definitions, &others) {
            match result {
                Ok(one) => built.push(one),
                Err(error) if several => faults.push(format!("{name}: {error}")),
                Err(error) => faults.push(error),
            }
        }
        if faults.is_empty() { Ok(built) } else { bail!(faults.join("\n")) }
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
    for node in render(built, instance).map_err(anyhow::Error::msg)? {
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
    plan.changes.iter().for_each(print_change);
}

fn print_change(change: &Change) {
    let sign = match change.action {
        Action::Create => '+',
        Action::Change => '~',
        Action::Keep => '=',
        Action::Delete => '-',
        Action::Retain => 'o',
        Action::Wait => '?',
        Action::Refuse => '!',
    };
    println!("  {sign} {}", change.object);
    for field in &change.fields {
        println!("      {field}");
    }
}
