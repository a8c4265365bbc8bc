//! `orlop-compare`: sends the same requests to Orlop and to a kube-apiserver, and compares the answers in full.
//!
//! ```sh
//! cargo xtask compare --kube-apiserver PROGRAM --etcd PROGRAM
//! ```
//!
//! Both servers are started on loopback addresses, or are given as kubeconfigs.
//!
//! Requests are made by a generator without chance ([`generate`]) and by the cases of `data/cases.json` ([`cases`]).
//! Values that must differ are made equal ([`normalize`]): uids, times, resourceVersions, generated names. A difference that
//! remains is allowed by `data/allowed.json` ([`allowed`]), whose reasons are a section of COMPAT.md, or is a fault.

mod allowed;
mod cases;
mod difference;
mod generate;
mod normalize;
mod process;
mod request;
mod samples;
mod server;
mod settle;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufWriter, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use self::{
    allowed::Allowances,
    difference::{Difference, differences},
    normalize::normalized,
    process::Own,
    request::Request,
    server::{Answer, Server},
};

const USAGE: &str =
    "orlop-compare (--kube-apiserver PROGRAM --etcd PROGRAM | --reference KUBECONFIG) (--orlop PROGRAM | --server KUBECONFIG)
    --kube-apiserver, --etcd   programs that are started as the reference, on loopback addresses
    --reference                a server that runs already; its Services are of 10.0.0.0/16
    --orlop                    program that is started as the other server
    --server                   another server that runs already
    --count N                  requests that are generated, 10,000 unless told
    --only TEXT                shows differences of requests whose label contains a text
    --report FILE              writes every difference as a line of JSON
orlop-compare --allowed        prints the section of COMPAT.md";

/// Requests that are generated, besides the cases.
const COUNT: usize = 10_000;
/// Differences of one shape that are shown.
const SHOWN_MAX: usize = 3;

#[derive(Default)]
struct Arguments {
    reference: Option<PathBuf>,
    kube_apiserver: Option<PathBuf>,
    etcd: Option<PathBuf>,
    server: Option<PathBuf>,
    orlop: Option<PathBuf>,
    count: Option<usize>,
    only: Option<String>,
    report: Option<PathBuf>,
    allowed: bool,
}

fn arguments() -> Result<Arguments> {
    let mut arguments = Arguments::default();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value\n{USAGE}"));
        match word.as_str() {
            "--reference" => arguments.reference = Some(value()?.into()),
            "--kube-apiserver" => arguments.kube_apiserver = Some(value()?.into()),
            "--etcd" => arguments.etcd = Some(value()?.into()),
            "--report" => arguments.report = Some(value()?.into()),
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
    let (_reference, reference) = match (&arguments.reference, &arguments.kube_apiserver, &arguments.etcd) {
        (Some(kubeconfig), ..) => (None, Server::connect(kubeconfig)?),
        (None, Some(program), Some(etcd)) => own(Own::kube_apiserver(program, etcd).await?)?,
        _ => bail!(USAGE),
    };
    let (_orlop, server) = match (&arguments.server, &arguments.orlop) {
        (Some(kubeconfig), _) => (None, Server::connect(kubeconfig)?),
        (None, Some(program)) => own(Own::orlop(program).await?)?,
        (None, None) => bail!(USAGE),
    };
    let mut requests = cases::load()?;
    requests.extend(generate::requests(&samples::load()?, arguments.count.unwrap_or(COUNT)));
    let mut report = Report::new(allowances);
    if let Some(path) = &arguments.report {
        report.lines = Some(BufWriter::new(File::create(path)?));
    }
    for request in &requests {
        let (ours, theirs) = tokio::try_join!(server.send(request), reference.send(request))?;
        let is_shown = arguments.only.as_ref().is_none_or(|only| request.label.contains(only));
        if is_shown {
            report.add(request, &ours, &theirs)?;
        }
        tokio::try_join!(
            settle::after(&server, request, &ours),
            settle::after(&reference, request, &theirs)
        )?;
    }
    Ok(report.print())
}

fn own(own: Own) -> Result<(Option<Own>, Server)> {
    let server = Server::connect(&own.kubeconfig)?;
    Ok((Some(own), server))
}

/// Differences by shape.
struct Report {
    allowances: Allowances,
    compared: usize,
    /// Requests by allowance.
    allowed: BTreeMap<String, usize>,
    /// Faults by shape, with the first few.
    faults: BTreeMap<String, (usize, Vec<String>)>,
    different: usize,
    /// The file of all faults.
    lines: Option<BufWriter<File>>,
}

impl Report {
    fn new(allowances: Allowances) -> Self {
        Self {
            allowances,
            compared: 0,
            allowed: BTreeMap::new(),
            faults: BTreeMap::new(),
            different: 0,
            lines: None,
        }
    }

    fn add(&mut self, request: &Request, ours: &Answer, theirs: &Answer) -> Result<()> {
        self.compared += 1;
        let (left, right) = (normalized(ours), normalized(theirs));
        let mut is_different = false;
        for difference in differences(&left, &right) {
            if let Some(allowance) = self.allowances.of(request, &difference) {
                *self.allowed.entry(allowance.to_owned()).or_default() += 1;
                continue;
            }
            is_different = true;
            let Difference { pointer, ours, theirs } = &difference;
            let shape = difference.shape(request);
            if let Some(lines) = &mut self.lines {
                let Request { label, method, path, content_type, accept, body } = request;
                let line = json!({"label": label, "method": method, "path": path, "type": content_type, "accept": accept,
                    "body": body, "pointer": pointer, "ours": ours, "theirs": theirs, "codes": [left["code"], right["code"]]});
                writeln!(lines, "{line}")?;
            }
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
        Ok(())
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
