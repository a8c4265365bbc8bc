//! Prometheus' text format 0.0.4, converted from OpenMetrics.

use std::collections::HashSet;

/// Converts OpenMetrics to the older format, in which a counter's name is complete and there are neither units nor an
/// end mark. Counters of Kubernetes that end in `_count` do not end in `_total` too.
pub(crate) fn prometheus(open_metrics: &str) -> String {
    let counters: HashSet<&str> = open_metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut text = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines() {
        let comment = line.strip_prefix("# ").and_then(|line| line.split_once(' '));
        match comment {
            Some(("HELP" | "TYPE", rest)) => {
                let (name, said) = rest.split_once(' ').unwrap_or((rest, ""));
                let is_total = counters.contains(name) && !name.ends_with("_count");
                let total = if is_total { "_total" } else { "" };
                let word = if line.starts_with("# HELP") { "HELP" } else { "TYPE" };
                text.push_str(&format!("# {word} {name}{total} {said}\n"));
            }
            Some(("UNIT", _)) => {}
            _ if line == "# EOF" => {}
            _ => {
                let name = line.split(['{', ' ']).next().unwrap_or_default();
                let counter = name.strip_suffix("_total").filter(|counter| counter.ends_with("_count"));
                match counter.filter(|counter| counters.contains(counter)) {
                    Some(counter) => text.extend([counter, line.strip_prefix(name).unwrap_or_default()]),
                    None => text.push_str(line),
                }
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn counters_have_their_whole_name_and_there_is_no_end_mark() {
        let open = "# HELP a Things.\n# TYPE a counter\n# UNIT a seconds\na_total{x=\"1\"} 3\n\
            # TYPE r_count counter\nr_count_total{x=\"1\"} 2\n\
            # HELP b Size.\n# TYPE b gauge\nb 4\n# EOF\n";
        let expected = "# HELP a_total Things.\n# TYPE a_total counter\na_total{x=\"1\"} 3\n\
            # TYPE r_count counter\nr_count{x=\"1\"} 2\n\
            # HELP b Size.\n# TYPE b gauge\nb 4\n";
        assert_eq!(super::prometheus(open), expected);
    }
}
