//! `orlop-compare`: sends the same requests to Orlop and to a kube-apiserver, and compares the answers in full.
//!
//! ```sh
//! cargo xtask compare --reference KUBECONFIG
//! ```
//!
//! Requests are made by a generator without chance ([`generate`]) and by the cases of `data/cases.json` ([`cases`]).
//! Values that must differ are made equal ([`normalize`]): uids, times, resourceVersions, generated names. A difference that
//! remains is allowed by `data/allowed.json` ([`allowed`]), whose reasons are a section of COMPAT.md, or is a fault.

mod allowed;
mod cases;
mod difference;
mod generate;
mod normalize;
mod request;
mod samples;
mod server;

use std::{collections::BTreeMap, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result, bail};

use self::{
    allowed::Allowances,
    difference::{Difference, differences},
    normalize::Normalizer,
    request::Request,
    server::{Answer, Own, Server},
};

const USAGE: &str =
    "orlop-compare --reference KUBECONFIG (--server KUBECONFIG | --orlop PROGRAM) [--count N] [--only TEXT]
orlop-compare --allowed    prints the section of COMPAT.md";

/// Requests that are generated, besides the cases.
const COUNT: usize = 10_000;
/// Differences of one shape that are shown.
const SHOWN_MAX: usize = 3;

#[derive(Default)]
struct Arguments {
    reference: Option<PathBuf>,
    server: Option<PathBuf>,
    orlop: Option<PathBuf>,
    count: Option<usize>,
    only: Option<String>,
    allowed: bool,
}

fn arguments() -> Result<Arguments> {
    let mut arguments = Arguments::default();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value\n{USAGE}"));
        match word.as_str() {
            "--reference" => arguments.reference = Some(value()?.into()),
            "--server" => arguments.server = Some(value()?.into()),
            "--orlop" => arguments.orlop = Some(value()?.into()),
            "--count" => arguments.count = Some(value()?.parse()?),
            "--only" => arguments.only = Some(value()?),
            "--allowed" => arguments.allowed = true,
            _ => bail!("{word} is not an argument\n{USAGE}"),
        }
    }
    Ok(arguments)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns true if no difference is a fault.
async fn run() -> Result<bool> {
    let arguments = arguments()?;
    let allowances = Allowances::load()?;
    if arguments.allowed {
        print!("{}", allowances.markdown());
        return Ok(true);
    }
    let reference = Server::connect(&arguments.reference.context(USAGE)?)?;
    let (own, server) = match (&arguments.server, &arguments.orlop) {
        (Some(kubeconfig), _) => (None, Server::connect(kubeconfig)?),
        (None, Some(program)) => {
            let own = Own::start(program).await?;
            let server = Server::connect(&own.kubeconfig)?;
            (Some(own), server)
        }
        (None, None) => bail!(USAGE),
    };
    let mut requests = cases::load()?;
    requests.extend(generate::requests(&samples::load()?, arguments.count.unwrap_or(COUNT)));
    let mut report = Report::new(allowances);
    for request in &requests {
        let (ours, theirs) = tokio::try_join!(server.send(request), reference.send(request))?;
        let is_shown = arguments.only.as_ref().is_none_or(|only| request.label.contains(only));
        if is_shown {
            report.add(request, &ours, &theirs);
        }
    }
    drop(own);
    Ok(report.print())
}

/// Differences by shape.
struct Report {
    allowances: Allowances,
    ours: Normalizer,
    theirs: Normalizer,
    compared: usize,
    /// Requests by allowance.
    allowed: BTreeMap<String, usize>,
    /// Faults by shape, with the first few.
    faults: BTreeMap<String, (usize, Vec<String>)>,
    different: usize,
}

impl Report {
    fn new(allowances: Allowances) -> Self {
        Self {
            allowances,
            ours: Normalizer::default(),
            theirs: Normalizer::default(),
            compared: 0,
            allowed: BTreeMap::new(),
            faults: BTreeMap::new(),
            different: 0,
        }
    }

    fn add(&mut self, request: &Request, ours: &Answer, theirs: &Answer) {
        self.compared += 1;
        let (left, right) = (self.ours.normalize(ours), self.theirs.normalize(theirs));
        let mut is_different = false;
        for difference in differences(&left, &right) {
            if let Some(allowance) = self.allowances.of(request, &difference) {
                *self.allowed.entry(allowance.to_owned()).or_default() += 1;
                continue;
            }
            is_different = true;
            let Difference { pointer, ours, theirs } = &difference;
            let shape = difference.shape(request);
            let (count, examples) = self.faults.entry(shape).or_default();
            *count += 1;
            if examples.len() < SHOWN_MAX {
                let line = format!(
                    "  {}\n    at {pointer}\n      ours   {}\n      theirs {}",
                    request.summary(),
                    difference::shortened(ours),
                    difference::shortened(theirs)
                );
                examples.push(line);
            }
        }
        self.different += usize::from(is_different);
    }

    /// Prints the report. Returns true if no difference is a fault.
    fn print(&self) -> bool {
        for (shape, (count, examples)) in &self.faults {
            println!("== {count} x {shape}");
            examples.iter().for_each(|example| println!("{example}"));
        }
        println!(
            "{} requests compared, {} differ in a way that is not allowed",
            self.compared, self.different
        );
        for (id, count) in &self.allowed {
            println!("  allowed {count:>6}  {id}");
        }
        for id in self.allowances.ids().filter(|id| !self.allowed.contains_key(*id)) {
            println!("  not seen        {id}");
        }
        self.faults.is_empty()
    }
}
