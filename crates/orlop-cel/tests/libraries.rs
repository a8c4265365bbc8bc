//! The function libraries. One row per behaviour.

mod table;

use orlop_cel::{Env, Library};
use table::{all_fail, all_refused, all_true, everything, outcome};

#[test]
fn strings() {
    let env = everything();
    all_true(
        &env,
        &[
            "'hello'.charAt(1) == 'e' && 'héllo'.charAt(1) == 'é' && 'hi'.charAt(2) == ''",
            "'hello mellow'.indexOf('ello') == 1 && 'hello'.indexOf('x') == -1 && 'hello'.indexOf('') == 0",
            "'hello mellow'.indexOf('ello', 2) == 7 && 'hello'.indexOf('', 2) == 2 && 'hello'.indexOf('h', 9) == -1",
            "'hello'.indexOf('', 9) == 5 && 'é-é'.indexOf('é', 1) == 2",
            "'hello mellow'.lastIndexOf('ello') == 7 && 'hello'.lastIndexOf('') == 5 && 'a'.lastIndexOf('ab') == -1",
            "'hello mellow'.lastIndexOf('ello', 6) == 1 && 'hello mellow'.lastIndexOf('ello', 7) == 7",
            "'hello'.lastIndexOf('h', 9) == -1 && 'hello'.lastIndexOf('', 2) == 2 && 'ééé'.lastIndexOf('é', 1) == 1",
            "'TacoCÆt'.lowerAscii() == 'tacocÆt' && 'TacoCÆt'.upperAscii() == 'TACOCÆT'",
            "'hello hello'.replace('he', 'we') == 'wello wello'",
            "'hello hello'.replace('he', 'we', 1) == 'wello hello' && 'aa'.replace('a', 'b', -1) == 'bb'",
            "'aa'.replace('a', 'b', 0) == 'aa' && 'ab'.replace('', '_') == '_a_b_'",
            "'a b c'.split(' ') == ['a', 'b', 'c'] && ''.split(',') == [''] && 'ab'.split('') == ['a', 'b']",
            "'a b c'.split(' ', 2) == ['a', 'b c'] && 'a b'.split(' ', 0) == [] && 'a b'.split(' ', -1) == ['a', 'b']",
            "'a b'.split(' ', 1) == ['a b'] && 'abc'.split('', 2) == ['a', 'bc'] && ''.split('') == []",
            "'tacocat'.substring(4) == 'cat' && 'tacocat'.substring(0, 4) == 'taco' && 'é!'.substring(1) == '!'",
            "'a'.substring(1) == '' && 'abc'.substring(1, 1) == ''",
            "' \\t x \\n'.trim() == 'x' && '\\u00a0x'.trim() == 'x'",
            "['a', 'b'].join() == 'ab' && ['a', 'b'].join('-') == 'a-b' && [].join('-') == ''",
            "strings.quote('a\"b\\n') == '\"a\\\\\"b\\\\n\"'",
            "'gums'.reverse() == 'smug' && 'aé'.reverse() == 'éa'",
        ],
    );
    all_fail(
        &env,
        &[
            ("'a'.charAt(2)", "index out of range: 2"),
            ("'a'.charAt(-1)", "index out of range: -1"),
            ("'a'.indexOf('a', -1)", "index out of range: -1"),
            ("'a'.lastIndexOf('a', -1)", "index out of range: -1"),
            ("'a'.substring(2)", "index out of range: 2"),
            ("'a'.substring(0, 2)", "index out of range: 2"),
            ("'abc'.substring(2, 1)", "invalid substring range. start: 2, end: 1"),
            ("dyn([1]).join()", "no such overload"),
        ],
    );
}

#[test]
fn formatting() {
    let env = everything();
    all_true(
        &env,
        &[
            "'%s and %s'.format(['a', 1]) == 'a and 1'",
            "'%d%%'.format([50]) == '50%' && '%d'.format([50u]) == '50'",
            "'%s'.format([true]) == 'true' && '%s'.format([null]) == 'null' && '%s'.format([1.5]) == '1.5'",
            "'%s'.format([b'ab']) == 'ab' && '%s'.format([int]) == 'int'",
            "'%s'.format([duration('90s')]) == '90s'",
            "'%s'.format([timestamp('2020-01-01T00:00:00Z')]) == '2020-01-01T00:00:00Z'",
            "'%s'.format([['a', 1, 1.5, null, b'x']]) == '[\"a\", 1, 1.500000, null, b\"x\"]'",
            "'%s'.format([[duration('1s'), timestamp(0)]]) == '[duration(\"1s\"), timestamp(\"1970-01-01T00:00:00Z\")]'",
            "'%s'.format([{'b': 1, 'a': [2]}]) == '{\"a\":[2], \"b\":1}'",
            "'%s'.format([{1: true, 2: false}]) == '{1:true, 2:false}'",
            "'%.2f'.format([1234.567]) == '1234.57' && '%f'.format([1.0]) == '1.000000'",
            "'%.3e'.format([1234.567]) == '1.235e+03' && '%e'.format([0.5]) == '5.000000e-01'",
            "'%b'.format([5]) == '101' && '%b'.format([-5]) == '-101' && '%b'.format([true]) == '1'",
            "'%x'.format([255]) == 'ff' && '%X'.format([255]) == 'FF' && '%x'.format(['hi']) == '6869'",
            "'%x'.format([b'hi']) == '6869' && '%x'.format([255u]) == 'ff'",
            "'%o'.format([8]) == '10' && '%o'.format([8u]) == '10'",
            "'%f'.format(['NaN']) == 'NaN' && '%e'.format(['Infinity']) == 'Infinity'",
            "'no clause'.format([]) == 'no clause'",
        ],
    );
    // Kubernetes pins the version that formats numbers for a locale.
    let kubernetes = Env::kubernetes(34).build();
    all_true(
        &kubernetes,
        &[
            "'%e'.format([3.14]) == '3.140000×10⁰⁰'",
            "'%e'.format([0.0012]) == '1.200000×10⁻⁰³'",
            "'%.1f'.format([1234567.89]) == '1,234,567.9' && '%.0f'.format([12.0]) == '12'",
        ],
    );
    all_fail(
        &env,
        &[
            (
                "'%d'.format(dyn(['a']))",
                "error during formatting: decimal clause can only be used on integers, was given string",
            ),
            ("'%s'.format(dyn([]))", "index 0 out of range"),
            (
                "('%' + 'z').format([1])",
                "could not parse formatting clause: unrecognized formatting clause \"z\"",
            ),
            ("('%' + '').format([1])", "unexpected end of string"),
            (
                "('%' + '.2').format([1])",
                "could not parse formatting clause: error while parsing precision: could not find end of precision specifier",
            ),
            (
                "('%' + '.999f').format([1.0])",
                "could not parse formatting clause: error while parsing precision: error while converting precision to integer",
            ),
        ],
    );
}

#[test]
fn lists() {
    let env = everything();
    all_true(
        &env,
        &[
            "[1, 2, 2].isSorted() && ![2, 1].isSorted() && ['a', 'b'].isSorted() && [].isSorted()",
            "[1, 3].sum() == 4 && [1u, 3u].sum() == 4u && [1.5, 1.5].sum() == 3.0",
            "[duration('1m'), duration('1s')].sum() == duration('1m1s') && dyn([1]).sum() == 1",
            "[1, 3, 2].max() == 3 && [1, 3, 2].min() == 1 && ['b', 'a'].min() == 'a' && [true, false].max()",
            "[b'a', b'b'].max() == b'b' && [timestamp(1), timestamp(2)].max() == timestamp(2)",
            "[1, 2, 2, 3].indexOf(2) == 1 && [1, 2, 2, 3].lastIndexOf(2) == 2 && [1].indexOf(5) == -1",
            "[1, 2].includes(2) && ![1, 2].includes(3) && 'a'.includes('a') && !'a'.includes('b')",
            "[1, 2, 3, 4].slice(1, 3) == [2, 3] && [1].slice(1, 1) == []",
            "[[1], [2, 3]].flatten() == [1, 2, 3]",
            "[dyn([dyn(1), dyn([dyn(2), dyn([3])])])].flatten(2) == [dyn(1), dyn(2), dyn([3])]",
            "[[1], [2]].flatten(0) == [[1], [2]]",
            "dyn([1, 2]).flatten() == [1, 2]",
            "[3, 1, 2].sort() == [1, 2, 3] && ['b', 'a'].sort() == ['a', 'b'] && [].sort() == []",
            "[2.5, 1.5].sort() == [1.5, 2.5] && [true, false].sort() == [false, true]",
            "[1, 2, 1, 3].distinct() == [1, 2, 3] && [dyn(1), dyn(1u), dyn(1.0)].distinct() == [1]",
            "[1, 2, 3].reverse() == [3, 2, 1] && [].reverse() == []",
            "lists.range(3) == [0, 1, 2] && lists.range(0) == []",
            "['banana', 'fig'].sortBy(s, s.size()) == ['fig', 'banana']",
        ],
    );
    all_fail(
        &env,
        &[
            ("[].max()", "max called on empty list"),
            ("[].min()", "min called on empty list"),
            ("[9223372036854775807, 1].sum()", "integer overflow"),
            ("[1].slice(0, 2)", "cannot slice(0, 2), list is length 1"),
            ("[1].slice(-1, 1)", "cannot slice(-1, 1), negative indexes not supported"),
            ("[1].slice(1, 0)", "cannot slice(1, 0), start index must be less than or equal to end index"),
            ("[[1]].flatten(-1)", "level must be non-negative"),
            ("lists.range(-1)", "lists.range: size must be non-negative, got -1"),
            ("lists.range(1000001)", "lists.range: result exceeds 1000000 elements"),
            ("dyn([dyn(1), dyn('a')]).sort()", "list elements must have the same type"),
            ("dyn([[1], [2]]).sort()", "list elements must be comparable"),
        ],
    );
}

#[test]
fn sets() {
    all_true(
        &everything(),
        &[
            "sets.contains([1, 2], [2]) && sets.contains([1], []) && !sets.contains([1], [2])",
            "sets.equivalent([1, 2], [2, 1, 1]) && sets.equivalent([], []) && !sets.equivalent([1], [1, 2])",
            "sets.equivalent([dyn(1)], [dyn(1u), dyn(1.0)])",
            "sets.intersects([1, 2], [2, 3]) && !sets.intersects([1], [2]) && !sets.intersects([1], [])",
        ],
    );
}

#[test]
fn regular_expressions() {
    let env = everything();
    all_true(
        &env,
        &[
            "'abc 123'.find('[0-9]+') == '123' && 'abc'.find('[0-9]+') == ''",
            "'123 abc 456'.findAll('[0-9]+') == ['123', '456'] && 'x'.findAll('[0-9]+') == []",
            "'123 abc 456'.findAll('[0-9]+', 1) == ['123'] && '1 2'.findAll('[0-9]', 0) == []",
            "'1 2'.findAll('[0-9]', -1) == ['1', '2']",
            "'a1'.find('[a-z]' + '[0-9]') == 'a1'",
        ],
    );
    all_fail(&env, &[("'a'.find('[' + '')", "Illegal regex: error parsing regexp: missing closing ]: `[`")]);
}

#[test]
fn urls() {
    let env = everything();
    all_true(
        &env,
        &[
            "isURL('https://example.com/a?b=c') && isURL('/absolute/path') && !isURL('relative') && !isURL('')",
            "!isURL('http://[::1') && !isURL('http://a:b/') && !isURL('https://a b/') && !isURL('/%zz')",
            "isURL('mailto:someone@example.com') && !isURL(':no-scheme') && !isURL('http://a\\nb')",
            "url('HTTPS://example.com:80/').getScheme() == 'https' && url('/path').getScheme() == ''",
            "url('https://example.com:80/').getHost() == 'example.com:80'",
            "url('https://user:pw@example.com/').getHost() == 'example.com'",
            "url('https://[::1]:80/').getHost() == '[::1]:80' && url('https://[::1]:80/').getHostname() == '::1'",
            "url('https://example.com:80/').getHostname() == 'example.com'",
            "url('https://example.com:80/').getPort() == '80' && url('https://example.com/').getPort() == ''",
            "url('https://[::1]/').getPort() == ''",
            "url('https://example.com/path').getEscapedPath() == '/path'",
            "url('https://example.com/path with spaces/').getEscapedPath() == '/path%20with%20spaces/'",
            "url('https://example.com').getEscapedPath() == ''",
            "url('https://example.com/a%2Fb').getEscapedPath() == '/a%2Fb'",
            "url('https://example.com/p?k1=a&k2=b&k2=c').getQuery() == {'k1': ['a'], 'k2': ['b', 'c']}",
            "url('https://example.com/p?a+b=c%20d#f').getQuery() == {'a b': ['c d']}",
            "url('https://example.com/p?').getQuery() == {} && url('https://example.com/p').getQuery() == {}",
            "url('https://example.com/') == url('https://example.com/') && url('/a') != url('/b')",
        ],
    );
    all_fail(
        &env,
        &[(
            "url('not a url')",
            "URL parse error during conversion from string: parse \"not a url\": invalid URI for request",
        )],
    );
}

#[test]
fn quantities() {
    let env = everything();
    all_true(
        &env,
        &[
            "isQuantity('1.5Gi') && isQuantity('100m') && isQuantity('+1') && isQuantity('-.5') && isQuantity('1e3')",
            "isQuantity('1E') && isQuantity('5.') && isQuantity('12E-3')",
            "!isQuantity('') && !isQuantity('1.3Zi') && !isQuantity('a') && !isQuantity('1 k') && !isQuantity('1.2.3')",
            "!isQuantity('--1') && !isQuantity('1Kx') && isQuantity('Ki') && isQuantity('.')",
            "quantity('200M') == quantity('0.2G') && quantity('1Ki') == quantity('1024') && quantity('1k') != quantity('1Ki')",
            "quantity('1500m') == quantity('1.5') && quantity('1e3') == quantity('1k')",
            "quantity('50Mi').isGreaterThan(quantity('50M')) && !quantity('1').isGreaterThan(quantity('1'))",
            "quantity('50M').isLessThan(quantity('50Mi')) && !quantity('1').isLessThan(quantity('1'))",
            "quantity('1').compareTo(quantity('2')) == -1 && quantity('2').compareTo(quantity('1')) == 1",
            "quantity('1').compareTo(quantity('1000m')) == 0",
            "quantity('50k').add(quantity('20')) == quantity('50020') && quantity('50k').add(20) == quantity('50020')",
            "quantity('50k').sub(quantity('20')) == quantity('49980') && quantity('1').sub(2) == quantity('-1')",
            "quantity('100m').add(quantity('100m')) == quantity('0.2')",
            "quantity('50k').asInteger() == 50000 && quantity('1Gi').asInteger() == 1073741824",
            "quantity('50k').isInteger() && !quantity('50m').isInteger() && !quantity('1000m').isInteger()",
            "quantity('1.5k').isInteger() && !quantity('1.5Gi').isInteger() && !quantity('9999999999999999999').isInteger()",
            "quantity('1.5').asApproximateFloat() == 1.5 && quantity('-250m').asApproximateFloat() == -0.25",
            "sign(quantity('-1')) == -1 && sign(quantity('0')) == 0 && sign(quantity('5n')) == 1",
            // Parts below a billionth are rounded up; what is too large is cut.
            "quantity('0.1n') == quantity('1n') && quantity('-0.1n') == quantity('-1n')",
            "quantity('1e20').isGreaterThan(quantity('9223372036854775807')) && quantity('1e-100') == quantity('1n')",
            "quantity('99999999999999999999999999999999999999999999') == quantity('1e30')",
            "quantity('1234567.1234567890123456789012345678901234567890') == quantity('1234567.123456790')",
        ],
    );
    all_fail(
        &env,
        &[
            (
                "quantity('x')",
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
            ("quantity('1Ee')", "unable to parse quantity's suffix"),
            ("quantity('1.5').asInteger()", "cannot convert value to integer"),
        ],
    );
}

#[test]
fn addresses_and_networks() {
    let env = everything();
    all_true(
        &env,
        &[
            "isIP('127.0.0.1') && isIP('::1') && isIP('2001:db8::abcd') && !isIP('256.0.0.1') && !isIP('a')",
            "!isIP('::ffff:1.2.3.4') && !isIP('fe80::1%eth0') && !isIP('127.0.0.01') && !isIP('10.0.0.0/8')",
            "ip('127.0.0.1').family() == 4 && ip('::1').family() == 6",
            "ip('127.0.0.1') == ip('127.0.0.1') && ip('::1') != ip('::2') && ip('2001:DB8::1') == ip('2001:db8:0::1')",
            "ip.isCanonical('127.0.0.1') && ip.isCanonical('2001:db8::abcd') && !ip.isCanonical('2001:DB8::ABCD')",
            "!ip.isCanonical('2001:db8::0:0:0:abcd')",
            "string(ip('2001:DB8::1')) == '2001:db8::1' && type(ip('::1')) == net.IP",
            "ip('0.0.0.0').isUnspecified() && ip('::').isUnspecified() && !ip('1.1.1.1').isUnspecified()",
            "ip('127.0.0.5').isLoopback() && ip('::1').isLoopback() && !ip('10.0.0.1').isLoopback()",
            "ip('224.0.0.1').isLinkLocalMulticast() && ip('ff02::1').isLinkLocalMulticast() && !ip('224.0.1.1').isLinkLocalMulticast()",
            "ip('169.254.1.1').isLinkLocalUnicast() && ip('fe80::1').isLinkLocalUnicast() && !ip('10.0.0.1').isLinkLocalUnicast()",
            "ip('192.168.0.1').isGlobalUnicast() && ip('2001:db8::1').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast()",
            "!ip('127.0.0.1').isGlobalUnicast() && !ip('224.0.0.1').isGlobalUnicast() && !ip('fe80::1').isGlobalUnicast()",
            "isCIDR('10.0.0.0/8') && isCIDR('::/0') && !isCIDR('10.0.0.0') && !isCIDR('10.0.0.0/33') && !isCIDR('10.0.0.0/08')",
            "!isCIDR('::ffff:1.2.3.4/120') && !isCIDR('10.0.0.0/a') && isCIDR('10.0.0.1/8')",
            "cidr('10.0.0.0/8').containsIP(ip('10.1.2.3')) && cidr('10.0.0.0/8').containsIP('10.1.2.3')",
            "!cidr('10.0.0.0/8').containsIP('11.0.0.1') && !cidr('10.0.0.0/8').containsIP('::1')",
            "cidr('10.0.0.0/8').containsCIDR(cidr('10.1.0.0/16')) && cidr('10.0.0.0/8').containsCIDR('10.0.0.0/8')",
            "!cidr('10.1.0.0/16').containsCIDR('10.0.0.0/8') && !cidr('10.0.0.0/8').containsCIDR('11.0.0.0/16')",
            "cidr('0.0.0.0/0').containsIP('1.2.3.4') && cidr('::/0').containsIP('::1')",
            "cidr('10.1.2.3/8').ip() == ip('10.1.2.3') && cidr('10.1.2.3/8').prefixLength() == 8",
            "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && string(cidr('2001:db8::1/32').masked()) == '2001:db8::/32'",
            "cidr('10.0.0.0/8') != cidr('10.0.0.0/9') && type(cidr('::/0')) == net.CIDR",
        ],
    );
    all_fail(
        &env,
        &[
            (
                "ip('a')",
                "IP Address \"a\" parse error during conversion from string: ParseAddr(\"a\"): unable to parse IP",
            ),
            ("ip('::ffff:1.2.3.4')", "IPv4-mapped IPv6 address \"::ffff:1.2.3.4\" is not allowed"),
            ("ip('fe80::1%eth0')", "IP address \"fe80::1%eth0\" with zone value is not allowed"),
            (
                "cidr('a')",
                "network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix(\"a\"): no '/'",
            ),
        ],
    );
}

#[test]
fn named_formats() {
    all_true(
        &everything(),
        &[
            "!format.dns1123Label().validate('my-label').hasValue() && format.dns1123Label().validate('My').hasValue()",
            "format.dns1123Label().validate('a.b').value() == ['must not contain dots']",
            "format.dns1123Label().validate('-a').value()[0].startsWith('a lowercase RFC 1123 label must consist of')",
            "format.dns1123Label().validate('-a').value()[0].endsWith(\"(e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')\")",
            "format.dns1123Label().validate('a' + 'aaaaaaaaaaaaaaaa'.replace('a', 'aaaa')).value() == ['must be no more than 63 characters']",
            "!format.dns1123Subdomain().validate('a.b-c').hasValue() && format.dns1123Subdomain().validate('a..b').hasValue()",
            "!format.dns1035Label().validate('a-1').hasValue() && format.dns1035Label().validate('1-a').hasValue()",
            "!format.qualifiedName().validate('example.com/MyName').hasValue() && format.qualifiedName().validate('a/b/c').hasValue()",
            "format.qualifiedName().validate('/b').value() == ['prefix part must be non-empty']",
            "format.qualifiedName().validate('a/').value()[0] == 'name part must be non-empty'",
            "!format.dns1123LabelPrefix().validate('a-').hasValue() && format.dns1123LabelPrefix().validate('-').hasValue()",
            "!format.dns1123SubdomainPrefix().validate('a.b-').hasValue() && !format.dns1035LabelPrefix().validate('a-').hasValue()",
            "!format.labelValue().validate('').hasValue() && !format.labelValue().validate('a_B').hasValue() && format.labelValue().validate('-').hasValue()",
            "!format.uri().validate('http://a').hasValue() && format.uri().validate('a').hasValue()",
            "!format.uuid().validate('123e4567-e89b-12d3-a456-426614174000').hasValue()",
            "!format.uuid().validate('123e4567e89b12d3a456426614174000').hasValue()",
            "format.uuid().validate('123').value() == ['does not match the UUID format']",
            "format.byte().validate('aGVsbG8').hasValue() && format.byte().validate('').hasValue()",
            "!format.byte().validate('aGVsbG8=').hasValue() && format.byte().validate('a').value() == ['invalid base64']",
            "!format.date().validate('2021-01-31').hasValue() && format.date().validate('2021-02-30').value() == ['invalid date']",
            "!format.datetime().validate('2021-01-01T00:00:00Z').hasValue()",
            "format.datetime().validate('x').value() == ['invalid datetime']",
            "format.named('dns1123Label').value() == format.dns1123Label() && !format.named('nope').hasValue()",
            "format.named('uuid').hasValue() && format.dns1123Label() != format.dns1035Label()",
        ],
    );
}

#[test]
fn semantic_versions() {
    let env = everything();
    all_true(
        &env,
        &[
            "isSemver('1.0.0') && isSemver('1.2.3-alpha.1+build.5') && !isSemver('v1.0') && !isSemver('1.0') && !isSemver('')",
            "!isSemver('01.0.0') && !isSemver('1.0.0-01') && !isSemver('1.0.0-') && !isSemver('1.0.0+') && !isSemver('a.b.c')",
            "isSemver('v1.0', true) && isSemver('01.2', true) && isSemver('1', true) && !isSemver('v1.0', false)",
            "!isSemver('1.2-alpha', true)",
            "semver('v01.2', true) == semver('1.2.0')",
            "semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2 && semver('1.2.3').patch() == 3",
            "semver('1.2.3').isLessThan(semver('1.10.0')) && semver('2.0.0').isGreaterThan(semver('1.9.9'))",
            "semver('1.2.3').compareTo(semver('1.2.3')) == 0 && semver('1.0.0').compareTo(semver('2.0.0')) == -1",
            "semver('1.0.0-alpha').isLessThan(semver('1.0.0')) && semver('1.0.0-alpha').isLessThan(semver('1.0.0-beta'))",
            "semver('1.0.0-1').isLessThan(semver('1.0.0-alpha')) && semver('1.0.0-a').isLessThan(semver('1.0.0-a.1'))",
            "semver('1.0.0-2').isLessThan(semver('1.0.0-10'))",
            "semver('1.0.0+a') == semver('1.0.0+b') && semver('1.0.0') != semver('1.0.1')",
        ],
    );
    all_fail(
        &env,
        &[
            ("semver('1.0')", "No Major.Minor.Patch elements found"),
            ("semver('a.0.0')", "Invalid character(s) found in major number \"a\""),
            ("semver('01.0.0')", "Major number must not contain leading zeroes \"01\""),
            ("semver('')", "Version string empty"),
        ],
    );
}

#[test]
fn mathematics() {
    let env = everything();
    all_true(
        &env,
        &[
            "math.least(1, 2) == 1 && math.least(5) == 5 && math.least(3, 1, 2) == 1 && math.least([2, 1]) == 1",
            "math.greatest(1, 2) == 2 && math.greatest(dyn(1), dyn(5.5), dyn(3u)) == 5.5 && math.greatest([1.5, 2.5]) == 2.5",
            "math.least(1u, -1) == -1 && math.greatest(-1.5, 0u) == 0u",
            "math.ceil(1.2) == 2.0 && math.floor(-1.2) == -2.0 && math.round(1.5) == 2.0 && math.trunc(-1.7) == -1.0",
            "math.isInf(1.0 / 0.0) && math.isNaN(double('NaN')) && math.isFinite(1.0) && !math.isFinite(1.0 / 0.0)",
            "math.abs(-1) == 1 && math.abs(-1.5) == 1.5 && math.abs(1u) == 1u",
            "math.sign(-5) == -1 && math.sign(0.0) == 0.0 && math.sign(7u) == 1u && math.sign(-2.5) == -1.0",
            "math.sqrt(81.0) == 9.0 && math.sqrt(81) == 9.0 && math.sqrt(81u) == 9.0",
            "math.bitAnd(3, 5) == 1 && math.bitOr(1u, 2u) == 3u && math.bitXor(3, 5) == 6 && math.bitNot(1) == -2",
            "math.bitAnd(-1, 255) == 255 && math.bitNot(0u) == 18446744073709551615u",
            "math.bitShiftLeft(1, 2) == 4 && math.bitShiftRight(1024u, 2) == 256u && math.bitShiftLeft(1, 200) == 0",
            "math.bitShiftRight(-1024, 3) == 2305843009213693824",
        ],
    );
    all_fail(
        &env,
        &[
            ("math.abs(-9223372036854775808)", "integer overflow"),
            ("math.bitShiftLeft(1, -1)", "math.bitShiftLeft() negative offset: -1"),
            ("math.least(dyn([]))", "math.@min(list) argument must not be empty"),
            ("math.greatest(1.0, double('NaN'))", "NaN values cannot be ordered: math.@max"),
        ],
    );
    all_refused(
        &env,
        &[
            ("math.least()", 1, 1, "math.least() requires at least one argument"),
            ("math.least('a')", 1, 12, "math.least() invalid single argument value"),
            ("math.greatest(1, 'a')", 1, 18, "math.greatest() simple literal arguments must be numeric"),
        ],
    );
}

#[test]
fn encoders_and_json_patch() {
    let env = everything();
    all_true(
        &env,
        &[
            "base64.encode(b'hello') == 'aGVsbG8=' && base64.encode(b'') == '' && base64.encode(b'a') == 'YQ=='",
            "base64.decode('aGVsbG8=') == b'hello' && base64.decode('aGVsbG8') == b'hello' && base64.decode('') == b''",
            "base64.decode(base64.encode(b'\\xff\\x00\\xfe')) == b'\\xff\\x00\\xfe'",
            "jsonpatch.escapeKey('a/b~c') == 'a~1b~0c'",
        ],
    );
    all_fail(
        &env,
        &[("base64.decode('!')", "illegal base64 data"), ("base64.decode('a===')", "illegal base64 data")],
    );
}

#[test]
fn libraries_by_kubernetes_version() {
    for (minor, expression, compiles) in [
        (25, "'a'.charAt(0) == 'a'", true),
        (28, "'%s'.format(['a']) == 'a'", false),
        (29, "'%s'.format(['a']) == 'a'", true),
        (27, "optional.none().hasValue()", false),
        (28, "optional.none().hasValue()", true),
        (27, "1 < 2.0", false),
        (28, "1 < 2.0", true),
        (28, "sets.contains([1], [1])", false),
        (29, "sets.contains([1], [1])", true),
        (29, "isIP('::1')", false),
        (30, "isIP('::1') && isCIDR('::/0')", true),
        (30, "format.named('uuid').hasValue()", false),
        (31, "format.named('uuid').hasValue()", true),
        (31, "[1].all(i, v, v > i)", false),
        (32, "[1].all(i, v, v > i)", true),
        (32, "isSemver('1.0.0')", false),
        (33, "isSemver('1.0.0')", true),
        (33, "[2, 1].sort() == [1, 2]", false),
        (34, "[2, 1].sort() == [1, 2]", true),
        (36, "[1].includes(1)", false),
        (37, "[1].includes(1)", true),
        (37, "math.abs(1) == 1", false),
        (37, "cel.bind(a, 1, a) == 1", false),
        (37, "'ab'.reverse() == 'ba'", false),
    ] {
        let env = Env::kubernetes(minor).build();
        let outcome = outcome(&env, expression);
        assert_eq!(
            outcome == "true" || outcome == "false",
            compiles,
            "1.{minor}: {expression} gave {outcome}"
        );
    }
    let with_math = Env::kubernetes(34).library(Library::Math).library(Library::Bindings).build();
    all_true(&with_math, &["math.abs(-1) == 1", "cel.bind(a, 1, a) == 1"]);
}
