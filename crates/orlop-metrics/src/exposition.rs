//! `/metrics/resource` of a kubelet: counters of cpu time and gauges of memory, in Prometheus' text format. Pure.

use std::collections::BTreeMap;

/// Most lines of a node that are read.
const LINES_MAX: usize = 200_000;

/// Namespace, pod and name of a container.
pub(crate) type ContainerKey = (String, String, String);

/// Use of cpu and memory until a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counters {
    pub(crate) cpu_seconds: f64,
    pub(crate) memory_bytes: f64,
}

/// Counters of a node and of its containers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Scrape {
    pub(crate) node: Counters,
    pub(crate) containers: BTreeMap<ContainerKey, Counters>,
}

/// Parses the metrics of a node. Lines that are not understood are passed over.
pub(crate) fn parse(text: &str) -> Scrape {
    let mut scrape = Scrape::default();
    for line in text.lines().take(LINES_MAX).filter(|line| !line.starts_with('#')) {
        let Some((name, labels, value)) = sample(line) else { continue };
        let counters = match name {
            "node_cpu_usage_seconds_total" | "node_memory_working_set_bytes" => &mut scrape.node,
            "container_cpu_usage_seconds_total" | "container_memory_working_set_bytes" => {
                let label = |wanted: &str| {
                    labels.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.clone())
                };
                let key = label("namespace").zip(label("pod")).zip(label("container"));
                let Some(((namespace, pod), container)) = key else { continue };
                scrape.containers.entry((namespace, pod, container)).or_default()
            }
            _ => continue,
        };
        if name.ends_with("seconds_total") {
            counters.cpu_seconds = value;
        } else {
            counters.memory_bytes = value;
        }
    }
    scrape
}

/// Name, labels and value of a line.
type Line<'a> = (&'a str, Vec<(&'a str, String)>, f64);

/// Returns the name, labels and value of a line.
fn sample(line: &str) -> Option<Line<'_>> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            rest = rest.trim_start_matches([',', ' ']);
            if let Some(after) = rest.strip_prefix('}') {
                rest = after;
                break;
            }
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.push((label, value));
            rest = after;
        }
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some((name, labels, value))
}

/// Reads a quoted text up to its end. Returns it with what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[index + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_a_kubelet_are_read() {
        let text = "# TYPE container_cpu_usage_seconds_total counter\n\
            container_cpu_usage_seconds_total{container=\"c\",namespace=\"a\",pod=\"p\"} 1.5 1700000000000\n\
            container_memory_working_set_bytes{container=\"c\",namespace=\"a\",pod=\"p\"} 2.048e+06 1700000000000\n\
            container_start_time_seconds{container=\"c\",namespace=\"a\",pod=\"p\"} 1.7e9\n\
            node_cpu_usage_seconds_total 99 1700000000000\n\
            node_memory_working_set_bytes 1024\n\
            broken{label=\"x} 1\n";
        let scrape = parse(text);
        assert_eq!(scrape.node, Counters { cpu_seconds: 99.0, memory_bytes: 1024.0 });
        let key = ("a".to_owned(), "p".to_owned(), "c".to_owned());
        let counters = Counters { cpu_seconds: 1.5, memory_bytes: 2_048_000.0 };
        assert_eq!(scrape.containers, [(key, counters)].into());
    }
}
